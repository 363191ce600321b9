/* Commits, a cleanup and a tag of one table, as `docs/adr/0016-late-commits.md` decides them.

   A version is published by one conditional put. Cleaning up frees its number, so a put that was
   held up may get a number that others had. Requests are atomic steps; everything between two of
   them may take for ever. A reply may be lost: the put was done, or it was not.

   Properties, named as the invariants of ARCHITECTURE.md:
     24  a commit whose reply was lost is found by its id, never made twice      `told_rightly`
     29  cleaning up deletes what no version that stays needs, and nothing else  `remove`
     38  a commit that comes too late is not acknowledged                        `told_rightly`
     39  what refers to a version holds it, or fails before it is acknowledged   `remove`, `refer`

   With -DTRACES only executions of the real code are possible, of which it is counted how many
   are also possible here; with -DWITHOUT_... a part of the protocol is left out, and a property
   must fail: see test_model.py. */

#ifndef N
#define N 7                 /* numbers of versions below this one */
#endif
#ifndef WRITES
#define WRITES 3            /* commits of the second writer */
#endif
#ifndef CLEANUPS
#define CLEANUPS 1
#endif
#ifndef LOSSES
#define LOSSES 1            /* replies that are lost */
#endif

#define NONE 0
#define ACKNOWLEDGED 1
#define REFUSED 2
#define UNKNOWN 3

#ifdef TRACES
#include "traces.h"
#define SAYS(who, what, number) (trace_at < trace_end && steps[trace_at] == (who) * 1000 + (what) * 100 + (number))
#define STEP trace_at++
#else
#define SAYS(who, what, number) true
#define STEP skip
#endif
#define PUT 1
#define TAKEN 2
#define RECORD 3
#define DELETE 4
#define TOLD 5
#define HOLD 6
#define TAG 7
#define RELEASE 8

typedef Manifest { byte by; byte before[N] };   /* whose it is, and whose those before it were */

Manifest manifest[N];       /* what is stored under each number; by is 0 if nothing is */
byte record[N];             /* whose version was removed */
bool held[N];
bool tagged[N];
byte losses;

byte version[N];            /* what history says: whose each version was */
byte newest;

inline told_rightly(how, who) {
  /* at most one version is of a transaction; exactly one or none if its writer was told so */
  count = 0; i = 1;
  do
  :: i < N -> if :: version[i] == who -> count++ :: else fi; i++
  :: else -> break
  od;
  assert(count <= 1);
  assert(how != ACKNOWLEDGED || count == 1);
  assert(how != REFUSED || count == 0);
  i = 0; count = 0
}

inline copy_descent(from) {
  i = 1;
  do
  :: i < N -> base.before[i] = manifest[from].before[i]; i++
  :: else -> break
  od;
  i = 0; base.by = manifest[from].by
}

inline publish(number, who) {
  manifest[number].by = who;
  i = 1;
  do
  :: i < N -> manifest[number].before[i] = base.before[i]; i++
  :: else -> break
  od;
  i = 0;
  manifest[number].before[latest] = base.by;
  if
  :: number > newest -> assert(version[number] == NONE); version[number] = who; newest = number
  :: else            /* too late: its writer has to find out */
  fi
}

inline list_latest() {
  latest = N - 1;
  do
  :: latest > 0 && manifest[latest].by == NONE -> latest--
  :: else -> break
  od
}

inline remove(number) {
  /* `by path`: whatever has the name goes */
  assert(number != newest || manifest[number].by != version[number]);
  assert(!tagged[number] || manifest[number].by != version[number]);
  manifest[number].by = NONE
}

proctype Writer(byte first; byte many; bool cleans) {
  Manifest base;
  byte i, count, latest, judged = 2, at, above, found, lost, said, who = first, rounds;
  do
  :: who == first + many -> break
  :: else ->
    lost = 0;
look_up:
    atomic { list_latest(); }
    atomic {
      if
      :: manifest[latest].by == NONE -> goto look_up
      :: else -> copy_descent(latest)
      fi
    }
    at = judged + 1;
    do
    :: at > latest -> break
    :: at <= latest ->
      atomic {
        if
        :: at == latest -> found = base.by
        :: at < latest && manifest[at].by == base.before[at] -> found = manifest[at].by
        :: else -> found = NONE
        fi
      }
      if
      :: found == who ->
        if
        :: at == latest -> said = ACKNOWLEDGED; goto tell
        :: else -> goto landed
        fi
      :: found == NONE && lost == at && base.before[at] == who -> said = ACKNOWLEDGED; goto tell
      :: found == NONE && !(lost == at && base.before[at] == who) ->
        if
        :: lost == at -> lost = 0
        :: else
        fi;
        if
        :: lost -> said = UNKNOWN
        :: else -> said = REFUSED
        fi;
        goto tell
      :: else ->
        if
        :: lost == at -> lost = 0
        :: else
        fi;
        judged = at; at++
      fi
    od;
    if
    :: latest + 1 >= N -> said = UNKNOWN; goto tell   /* beyond what is modelled */
    :: else
    fi;
    if
    :: atomic { manifest[latest + 1].by == NONE && SAYS(first, PUT, latest + 1) -> STEP;
                publish(latest + 1, who); at = latest + 1 }
    :: atomic { manifest[latest + 1].by != NONE && SAYS(first, TAKEN, latest + 1) -> STEP };
       goto look_up
#ifndef TRACES
    :: atomic { losses < LOSSES -> losses++; at = latest + 1;
         if
         :: manifest[at].by == NONE -> publish(at, who)
         :: true
         fi };
       if
       :: manifest[at].by == who -> skip
       :: else -> lost = at; goto look_up
       fi
#endif
    fi;
landed:
#ifdef WITHOUT_LOOKING
    said = ACKNOWLEDGED; goto tell;
#endif
    atomic {
      above = at + 1;
      do
      :: above < N && manifest[above].by == NONE -> above++
      :: else -> break
      od;
      found = record[at]
    }
    if
    :: above == N -> said = ACKNOWLEDGED; goto tell
    :: above < N && found == who -> said = ACKNOWLEDGED; goto tell
    :: above < N && found != who && found != NONE -> skip
    :: else ->
      atomic {
        if
        :: manifest[above].by == NONE -> found = NONE; goto landed
        :: else -> found = manifest[above].before[at]
        fi
      }
      if
      :: found == who -> said = ACKNOWLEDGED; goto tell
      :: else
      fi
    fi;
    atomic { SAYS(first, DELETE, at) -> STEP; remove(at) }
    goto look_up;
tell:
    atomic {
      (first != 1 || SAYS(first, TOLD, said)) -> if :: first == 1 -> STEP :: else fi;
      told_rightly(said, who);
      if
      :: said == ACKNOWLEDGED && at > judged -> judged = at
      :: else
      fi
    }
    who++
  od;
  if
  :: cleans -> run Cleaner(first)
  :: else
  fi
}

proctype Cleaner(byte name) {
  byte latest, at, seen[N], rounds, lowest;
  bool late[N], spared[N], records;
  do
  :: rounds == CLEANUPS -> break
  :: else ->
    rounds++;
    atomic { list_latest(); }
    at = 1;
    do
    :: at < latest -> atomic { seen[at] = manifest[at].by; late[at] = false; spared[at] = false }; at++
    :: else -> break
    od;
    atomic {
      at = 1; records = false;
      do
      :: at < latest ->
        late[at] = (seen[at] != NONE && record[at] != NONE && record[at] != seen[at]);
        records = (records || (seen[at] != NONE && record[at] == NONE));
        at++
      :: else -> break
      od
    }
    if
#ifdef WITHOUT_RECORDS
    :: true -> skip
#endif
    :: records ->
      atomic {
        SAYS(name, RECORD, 0) -> STEP;
        at = 1;
        do
        :: at < latest ->
          if
          :: seen[at] != NONE && !late[at] && record[at] == NONE -> record[at] = seen[at]
          :: else
          fi;
          at++
        :: else -> break
        od
      }
    :: else
    fi;
    atomic {        /* holds before tags; what is referred to stays, and is taken out of the record */
      at = 1;
      do
      :: at < latest ->
#ifndef WITHOUT_HOLDS
        spared[at] = held[at];
#endif
        at++
      :: else -> break
      od
    }
    atomic {
      at = 1;
      do
      :: at < latest ->
        spared[at] = (spared[at] || tagged[at]);
        if
        :: spared[at] && record[at] == seen[at] -> record[at] = NONE
        :: else
        fi;
        at++
      :: else -> break
      od
    }
    at = 1;
    do
    :: at < latest ->
      if
      :: seen[at] != NONE && !late[at] && !spared[at] ->
        atomic { SAYS(name, DELETE, at) -> STEP; remove(at) }
      :: else
      fi;
      at++
    :: else -> break
    od;
    at = 1;
    do
    :: at < latest ->
      if
      :: late[at] -> atomic { SAYS(name, DELETE, at) -> STEP; remove(at) }
      :: else
      fi;
      at++
    :: else -> break
    od
  od
}

proctype Tagger(byte number) {
  atomic { SAYS(1, HOLD, number) -> STEP; held[number] = true }
  if
  :: record[number] != NONE -> skip
  :: else ->
    if
    :: manifest[number].by == NONE -> skip
    :: else ->
      /* refer: the version must be there, and be the one of its number */
      atomic {
        SAYS(1, TAG, number) -> STEP;
        assert(manifest[number].by == version[number]);
        tagged[number] = true
      }
    fi
  fi;
  atomic { SAYS(1, RELEASE, number) -> STEP; held[number] = false }
}

init {
  atomic {
    /* two versions of transactions that ended before */
    manifest[1].by = 100; version[1] = 100;
    manifest[2].by = 101; version[2] = 101; manifest[2].before[1] = 100;
    newest = 2;
#ifdef TRACES
    select_trace();
#ifdef OF_TAGS
    run Tagger(1);
    run Cleaner(2)
#else
    run Writer(1, 1, false);
    run Writer(2, 2, true)
#endif
#else
    run Writer(1, 1, false);
    run Writer(2, WRITES, false);
    run Cleaner(9);
    run Tagger(2)
#endif
  }
#ifdef TRACES
  (trace_at == trace_end);
  c_code { printf("accepted %d\n", now.trace_number); }
#endif
}

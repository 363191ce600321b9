/* Commits through a database of manifests, as `ExternalStore` makes them.

   A manifest is staged under a name of its own, recorded if no other of its number is, and then
   given its final name: copied, the record changed, the staged one deleted. Whoever finds a record
   whose manifest has no final name does what is left. Requests are atomic steps; everything
   between two of them may take for ever, and one reply of the database may be lost.

   Properties, named as the invariants of ARCHITECTURE.md:
     24  a commit whose reply was lost is found by its id, never made twice     `told_rightly`
     25  writers that race lose and double nothing                              `told_rightly`
     27  any reader finishes what a dead writer began                           `reader`

   With -DTRACES only executions of the real code are possible, as in commits.pml; with
   -DWITHOUT_... a part is left out, and a property must fail: see test_model.py. */

#ifndef COMMITS
#define COMMITS 2           /* of each of two writers */
#endif
#define V (2 * COMMITS + 2) /* numbers of versions below this one; 1 is there before */
#define IDS (2 * COMMITS + 2)
#ifndef LOSSES
#define LOSSES 1
#endif

#ifdef TRACES
#include "traces.h"
#define SAYS(who, what, number) (trace_at < trace_end && steps[trace_at] == (who) * 1000 + (what) * 100 + (number))
#define STEP trace_at++
#else
#define SAYS(who, what, number) true
#define STEP skip
#endif
#define RECORDED 1
#define TAKEN 2
#define COPY 3
#define UPDATE 4
#define UNSTAGE 5

byte record[V];             /* whose manifest a number has; 0 if none is recorded */
bool is_final[V];           /* whether the record has the final name */
byte file[V];               /* whose manifest has the final name */
byte staged[IDS];           /* the number that a commit's staged manifest is for, 0 if none */
byte losses;

inline latest(found) {
    d_step {
        found = V - 1;
        do
        :: record[found] == 0 && found > 1 -> found--
        :: else -> break
        od
    }
}

/* What is left of a recorded commit, by anybody; each request is a step. */
inline finish(me, number) {
    atomic {
        SAYS(me, COPY, number) -> STEP;
        if
        :: staged[record[number]] == number -> file[number] = record[number]
        :: else -> skip                 /* another did it all, and the name is there */
        fi
    };
    assert(file[number] != 0);
    atomic { SAYS(me, UPDATE, number) -> STEP; is_final[number] = true };
#ifdef WITHOUT_COPY
    file[number] = 0;
#endif
    atomic { SAYS(me, UNSTAGE, number) -> STEP; staged[record[number]] = 0 }
}

inline told_rightly(who, is_done) {
    d_step {
        times = 0;
        at = 1;
        do
        :: at < V -> times = times + (record[at] == who -> 1 : 0); at++
        :: else -> break
        od;
        assert(times == (is_done -> 1 : 0));
        at = 0;
        times = 0
    }
}

proctype writer(byte first) {
    byte id = first, number, times, at, me = (first == 1 -> 1 : 2);
    bool is_lost, is_begun;
    do
    :: id < first + COMMITS ->
again:
        /* whoever finds the latest version in the database finishes its commit; one may also find
           it by its final name */
        atomic { latest(number); is_begun = !is_final[number] };
        if
        :: is_begun -> finish(me, number)
        :: is_begun && file[number] != 0 -> skip
        :: !is_begun -> skip
        fi;
        number++;
        if
        :: number >= V -> break
        :: else -> skip
        fi;
#ifndef WITHOUT_STAGING
        staged[id] = number;
#endif
        is_lost = false;
        if
#ifdef WITHOUT_CONDITION
        :: record[number] = id
#else
        :: atomic { record[number] == 0 && SAYS(me, RECORDED, number) -> STEP;
             record[number] = id; is_final[number] = false }
        :: atomic { record[number] != 0 && record[number] != id && SAYS(me, TAKEN, number) -> STEP }
#endif
        :: atomic { losses < LOSSES -> losses++; is_lost = true;    /* done, without a reply */
             if
             :: record[number] == 0 -> record[number] = id; is_final[number] = false
             :: else -> skip
             fi }
        :: atomic { losses < LOSSES -> losses++; is_lost = true }   /* not even done */
        fi;
        if
        :: is_lost && record[number] == 0 -> staged[id] = 0; goto again    /* looked up */
        :: record[number] == id ->
            finish(me, number);
            told_rightly(id, true);
            id++
        :: record[number] != 0 && record[number] != id ->
            atomic { SAYS(me, UNSTAGE, number) -> STEP; staged[id] = 0 };
            goto again
        fi
    :: id < first + COMMITS -> break    /* dies, or gives up before it tries */
    :: id >= first + COMMITS -> break
    od
}

proctype reader() {
    byte number, seen, whose, me = 3;
    byte rounds;
    do
    :: rounds < 2 ->
        latest(number);
        assert(number >= seen);         /* what was a version stays one */
        seen = number;
        whose = record[number];
        if
        :: !is_final[number] -> finish(me, number)
        :: else -> skip
        fi;
        assert(file[number] == whose);
        rounds++
    :: else -> break
    od
}

init {
    atomic {
        record[1] = IDS - 1;
        is_final[1] = true;
        file[1] = IDS - 1;
#ifdef TRACES
        select_trace();
#endif
        run writer(1);
        run writer(1 + COMMITS);
        run reader()
    }
#ifdef TRACES
    (trace_at == trace_end);
    c_code { printf("accepted %d\n", now.trace_number); }
#endif
}

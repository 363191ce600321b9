"""A soak run: processes that write, read, compact and clean up while they are killed and paused.

    python tests/soak/soak.py --seconds 600 --record

Eight processes work on four tables: of this library and of the reference, on the local disk and on
an object store on the loopback. A process owns the batches that it appended, so that the state of a
batch follows from the replies to its owner:

    append 17       acknowledged        its rows exist, each once, with v = 0
    bump 17         no answer           v is 0 or 1 from now on, in all of its rows
    drop 17         refused             its rows still exist

Each operation is logged before it starts and after it ends, so an operation of a killed process
has no answer. All readers of a version see the same rows. At the end, both libraries read the same
rows, and `check` reports nothing for tables of this library.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.kit.records import append_record

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
    ]
)
ROWS = 4
"""Rows of a batch."""
WRITERS = ("ours", "ours", "ours", "ours", "ours", "theirs", "theirs", "theirs")
"""The library of each process."""
PLACES = ("disk", "s3")
KINDS = {
    "append": 8,
    "bump": 5,
    "drop": 2,
    "look": 4,
    "again": 2,
    "compact": 1,
    "cleanup": 2,
    "index": 1,
    "optimize": 1,
    "tag": 1,
}
"""The weight of each kind of operation."""

ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"


# --- what is known of a batch ---------------------------------------------------------------------


@dataclass
class Batch:
    """The state of a batch, as far as its owner received replies."""

    append: str = UNKNOWN
    drop: str = REFUSED
    bumps: Counter[str] = field(default_factory=Counter)

    def wrong(self, values: list[int]) -> str | None:
        """Return the errors in the values of its rows in the newest version."""
        if not values:
            lost = self.append == ACKNOWLEDGED and self.drop == REFUSED
            return "rows that were acknowledged are not there" if lost else None
        if self.append == REFUSED:
            return "rows that were refused are there"
        if self.drop == ACKNOWLEDGED:
            return "rows that were deleted are there"
        if len(values) != ROWS:
            return f"there are {len(values)} of {ROWS} rows"
        if len(set(values)) > 1:
            return f"an update is half there: {values}"
        least = self.bumps[ACKNOWLEDGED] if self.append == ACKNOWLEDGED else 0
        if not least <= values[0] <= self.bumps[ACKNOWLEDGED] + self.bumps[UNKNOWN]:
            return f"v is {values[0]} after {dict(self.bumps)}"
        return None


def replayed(events: Iterable[dict[str, Any]]) -> dict[tuple[str, int], Batch]:
    """Return the state of each batch of each table, from the logs of the processes."""
    batches: dict[tuple[str, int], Batch] = {}
    open_ones: dict[tuple[int, int], dict[str, Any]] = {}

    def ended(begun: dict[str, Any], told: str) -> None:
        if begun["kind"] not in {"append", "bump", "drop"}:
            return
        batch = batches.setdefault((begun["table"], begun["batch"]), Batch())
        if begun["kind"] == "bump":
            batch.bumps[told] += 1
        elif begun["kind"] == "append" or told != REFUSED:
            setattr(batch, begun["kind"], told)

    for event in events:
        if "number" not in event:
            continue
        key = event["worker"], event["number"]
        if "told" in event:
            ended(open_ones.pop(key), event["told"])
        else:
            open_ones[key] = event
    for begun in open_ones.values():
        ended(begun, UNKNOWN)
    return batches


def judged(
    batches: dict[tuple[str, int], Batch], found: dict[str, dict[int, list[int]]]
) -> list[str]:
    """Return the errors of the batches of tables."""
    wrong = []
    for (table, number), batch in sorted(batches.items()):
        said = batch.wrong(found[table].get(number, []))
        if said is not None:
            wrong.append(f"{table}, batch {number}: {said}; {batch}")
    known = set(batches)
    wrong += [
        f"{table}, batch {number}: nobody wrote it"
        for table, rows in found.items()
        for number in rows
        if (table, number) not in known
    ]
    return wrong


def by_batch(table: pa.Table) -> dict[int, list[int]]:
    """Return the values of the rows of each batch."""
    found: dict[int, list[int]] = {}
    for number, value in zip(table["batch"].to_pylist(), table["v"].to_pylist(), strict=True):
        found.setdefault(number, []).append(value)
    return found


def inconsistent(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return the versions that did not read the same each time."""
    seen: dict[tuple[str, int], set[str]] = {}
    for event in events:
        if "digest" in event:
            seen.setdefault((event["table"], event["version"]), set()).add(event["digest"])
    return [
        f"{table}: version {version} read as {sorted(digests)}"
        for (table, version), digests in sorted(seen.items())
        if len(digests) > 1
    ]


# --- a process ------------------------------------------------------------------------------------


class Worker:
    """Works until it is killed."""

    def __init__(self, number: int, life: int, uris: dict[str, str], s3: dict[str, str]) -> None:
        self.number, self.uris, self.s3 = number, uris, s3
        self.library = WRITERS[number]
        self.random = random.Random(f"{number}/{life}")
        self.count = itertools.count(life * 1_000_000)
        self.log = Path(f"log-{number}").open("a", buffering=1)  # noqa: SIM115 - as long as we live
        self.log.write("\n")  # behind what we were about to write when we were killed
        self.own: dict[str, dict[int, Batch]] = {table: {} for table in uris}
        if self.library == "ours":
            import lancelet as library
            from lancelet.errors import CommitConflictError, LanceletError, NotFoundError

            self.refusals = (CommitConflictError, NotFoundError)
            self.errors: tuple[type[Exception], ...] = (LanceletError,)
        else:
            import lance as library

            self.refusals = ()
            self.errors = (OSError, ValueError, RuntimeError)
        self.lib: Any = library

    def note(self, **facts: Any) -> None:
        self.log.write(json.dumps({"worker": self.number, **facts}) + "\n")

    def open(self, table: str, version: int | None = None) -> Any:
        options = self.s3 if table.endswith("s3") else None
        return self.lib.dataset(self.uris[table], version=version, storage_options=options)

    def run(self) -> None:
        for (table, number), batch in replayed(events_of(Path(f"log-{self.number}"))).items():
            self.own[table][number] = batch
        while True:
            self.step()

    def step(self) -> None:
        table = self.random.choice(sorted(self.uris))
        kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
        own = [n for n, each in self.own[table].items() if each.drop == REFUSED]
        if kind in {"bump", "drop"} and not own:
            kind = "append"
        number = next(self.count)
        batch = number * 10 + self.number if kind == "append" else None
        if kind in {"bump", "drop"}:
            batch = self.random.choice(own)
        self.note(number=number, kind=kind, table=table, batch=batch)
        told, error = ACKNOWLEDGED, None
        try:
            getattr(self, kind)(table, batch)
        except self.refusals as caught:
            told, error = REFUSED, caught
        except self.errors as caught:
            text = str(caught).lower()
            is_refusal = self.library == "theirs" and "conflict" in text
            told, error = (REFUSED if is_refusal else UNKNOWN), caught
        said = {} if error is None else {"error": repr(error)[:300]}
        self.note(number=number, kind=kind, table=table, told=told, **said)
        if kind in {"append", "bump", "drop"}:
            known = self.own[table].setdefault(batch, Batch())
            if kind == "bump":
                known.bumps[told] += 1
            elif kind == "append" or told != REFUSED:
                setattr(known, kind, told)

    def append(self, table: str, batch: int) -> None:
        ids = [batch * ROWS + each for each in range(ROWS)]
        rows = pa.table({"id": ids, "batch": [batch] * ROWS, "v": [0] * ROWS}, SCHEMA)
        self.open(table).insert(rows)

    def bump(self, table: str, batch: int) -> None:
        self.open(table).update({"v": "v + 1"}, where=f"batch = {batch}")

    def drop(self, table: str, batch: int) -> None:
        self.open(table).delete(f"batch = {batch}")

    def look(self, table: str, _: None) -> None:
        """Check that the own batches are there."""
        found = by_batch(self.open(table).to_table())
        for number, known in self.own[table].items():
            wrong = known.wrong(found.get(number, []))
            if wrong is not None:
                self.note(violation=f"{table}, batch {number}: {wrong}; {known}", table=table)

    def again(self, table: str, _: None) -> None:
        """Read a version that others read too."""
        dataset = self.open(table)
        number = max(1, dataset.version - self.random.randrange(3))
        old = dataset if number == dataset.version else self.open(table, number)
        rows = sorted(old.to_table().to_pydict().items())
        self.note(table=table, version=number, digest=digest(rows))

    def compact(self, table: str, _: None) -> None:
        self.open(table).optimize.compact_files(target_rows_per_fragment=64)

    def cleanup(self, table: str, _: None) -> None:
        age = timedelta(seconds=self.random.choice([0, 1, 5]))
        self.open(table).cleanup_old_versions(age, error_if_tagged_old_versions=False)

    def index(self, table: str, _: None) -> None:
        self.open(table).create_scalar_index("batch", "BTREE")

    def optimize(self, table: str, _: None) -> None:
        self.open(table).optimize.optimize_indices()

    def tag(self, table: str, _: None) -> None:
        dataset = self.open(table)
        tags = sorted(dataset.tags.list())
        if len(tags) > 3:
            dataset.tags.delete(tags[0])
        dataset.tags.create(f"t{time.time_ns()}", max(1, dataset.version - 1))


def digest(rows: object) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def events_of(log: Path) -> list[dict[str, Any]]:
    """Return the events in the log of a process; an incomplete line is no event."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):  # as an empty line is none either
            found.append(json.loads(line))
    return found


# --- the run --------------------------------------------------------------------------------------


def run(folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Work in a folder for so long, and return the report."""
    from tests.kit.child import bound_to_us
    from tests.kit.s3_server import S3Server

    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    with S3Server("soak") as server:
        options = server.storage_options
        uris = {
            f"{library}-{place}": (
                str(folder / library) if place == "disk" else f"s3://soak/{library}"
            )
            for library in sorted(set(WRITERS))
            for place in PLACES
        }
        create(uris, options)
        lives: Counter[int] = Counter()
        workers: dict[int, subprocess.Popen[bytes]] = {}

        def start(number: int) -> None:
            lives[number] += 1
            own = {table: uri for table, uri in uris.items() if table.startswith(WRITERS[number])}
            task = json.dumps([number, lives[number], own, options])
            command = bound_to_us([sys.executable, str(Path(__file__)), "--worker", task])
            with (folder / f"errors-{number}").open("ab") as errors:
                workers[number] = subprocess.Popen(command, cwd=folder, stderr=errors)

        for number in range(len(WRITERS)):
            start(number)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.3, 2.0))
            number = chance.randrange(len(WRITERS))
            for each, worker in workers.items():
                if worker.poll() is not None:
                    counts["deaths of their own"] += 1
                    start(each)
            match chance.randrange(6):
                case 0:
                    workers[number].kill()
                    workers[number].wait()
                    counts["kills"] += 1
                    start(number)
                case 1:
                    server.pause()
                    time.sleep(chance.uniform(0.1, 1.5))
                    server.resume()
                    counts["pauses of the server"] += 1
                case _:
                    os.kill(workers[number].pid, signal.SIGSTOP)
                    time.sleep(chance.uniform(0.05, 1.5))
                    os.kill(workers[number].pid, signal.SIGCONT)
                    counts["pauses"] += 1
        for worker in workers.values():
            worker.kill()
            worker.wait()
        time.sleep(2)  # requests that they left behind arrive
        return report(folder, uris, options, counts, seconds)


def create(uris: dict[str, str], options: dict[str, str]) -> None:
    import lance

    import lancelet

    for table, uri in uris.items():
        library = lancelet if table.startswith("ours") else lance
        given = options if uri.startswith("s3:") else None
        library.write_dataset(SCHEMA.empty_table(), uri, storage_options=given)


def report(
    folder: Path,
    uris: dict[str, str],
    options: dict[str, str],
    counts: Counter[str],
    seconds: float,
) -> dict[str, Any]:
    """Check the final state, and count."""
    import lance

    import lancelet

    events = [event for n in range(len(WRITERS)) for event in events_of(folder / f"log-{n}")]
    wrong: dict[str, list[str]] = {table: [] for table in uris}
    found, versions = {}, {}
    for table, uri in uris.items():
        given = options if uri.startswith("s3:") else None
        ours = lancelet.dataset(uri, storage_options=given)
        rows = ours.to_table()
        theirs = lance.dataset(uri, storage_options=given).to_table()
        if rows.sort_by("id") != theirs.sort_by("id"):
            wrong[table].append("the two libraries do not read the same rows")
        ids = rows["id"].to_pylist()
        if len(set(ids)) < len(ids):
            wrong[table].append("rows are there twice")
        found[table], versions[table] = by_batch(rows), ours.version
        if table.startswith("ours"):
            wrong[table] += [f"check: {each}" for each in ours.check("indices")]
    batches = replayed(events)
    said = [event["violation"] for event in events if "violation" in event]
    for each in (*judged(batches, found), *said, *inconsistent(events)):
        wrong[each.partition(",")[0].partition(":")[0]].append(each)
    told = Counter((e["table"].partition("-")[0], e["told"]) for e in events if "told" in e)
    errors = Counter(
        # Its class: what it says has paths of the machine.
        (event["table"].partition("-")[0], event["kind"], event["error"].partition("(")[0])
        for event in events
        if event.get("told") == UNKNOWN and "error" in event
    )
    return {
        "seconds": round(seconds),
        **dict(counts),
        **{
            library: {
                "operations": sum(n for (each, _), n in told.items() if each == library),
                **{how: told[library, how] for how in (ACKNOWLEDGED, REFUSED, UNKNOWN)},
                "versions": sum(n for table, n in versions.items() if table.startswith(library)),
                "violations": sum(len(w) for t, w in wrong.items() if t.startswith(library)),
            }
            for library in sorted(set(WRITERS))
        },
        "wrong": {table: each[:20] for table, each in wrong.items() if each},
        "errors": [[*key, count] for key, count in errors.most_common(20)],
    }


def main() -> int:
    """Run for the requested time."""
    parser = argparse.ArgumentParser(prog="python tests/soak/soak.py")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="add the report to the records")
    parser.add_argument("--keep", type=Path, help="a folder to work in, which stays")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        Worker(*json.loads(options.worker)).run()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        said = run(folder.resolve(), options.seconds, options.seed)
    print(json.dumps(said, indent=2))  # noqa: T201 - a program
    if options.record:
        append_record("soak", said.pop("seconds"), said)
    return 1 if said["ours"]["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Histories of the log of a shard: competing writers, merges, collections and cleanups.

    put      key 3 is 17, acknowledged     reads return 17 until a later put or delete of key 3
    put      key 3 is 18, no reply         reads may return 17 or 18 from now on
    merge, collect, cleanup                do not change what reads return

For each key, the judge records which puts may be the latest: those not followed by an acknowledged
one.
"""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final

import pyarrow as pa

import lancelet
from lancelet.errors import CommitError, LanceletError, NotFoundError, StorageError
from lancelet.upkeep.check import Severity
from tests.kit.simulation.judge import BUCKET, MAIN, ViolationError
from tests.kit.simulation.machine import Actor, Killed, Machine
from tests.kit.simulation.operations import Step

SHARD: Final = str(uuid.UUID(int=7))
KEYS: Final = 5

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"}),
        ("v", pa.int64()),
    ]
)

WEIGHTS: Final = {
    "open": 5,
    "put": 10,
    "remove": 3,
    "close": 3,
    "merge": 4,
    "collect": 4,
    "clean": 2,
    "look": 2,
}

_TELLING: Final = (CommitError, StorageError, NotFoundError)


@dataclass(slots=True)
class _Put:
    """A value put for a key, or None for a deletion."""

    value: int | None
    began: float
    ended: float = math.inf
    is_acknowledged: bool = False


@dataclass(slots=True)
class ShardJudge:
    """The values that reads of each key may return."""

    puts: dict[int, list[_Put]] = field(default_factory=dict)
    moments: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, keys: list[int], value: int | None) -> list[_Put]:
        """Record the start of a put."""
        began = next(self.moments)
        made = [_Put(value, began) for _ in keys]
        for key, put in zip(keys, made, strict=True):
            self.puts.setdefault(key, [_Put(None, 0, 0, is_acknowledged=True)]).append(put)
        return made

    def acknowledged(self, puts: list[_Put]) -> None:
        """Record an acknowledged put."""
        for put in puts:
            put.ended = next(self.moments)
            put.is_acknowledged = True

    def check(self, found: pa.Table, where: str, *, is_newest: bool = True) -> None:
        """Check a read; a fenced writer returns its rows from before it was fenced."""
        keys = found["id"].to_pylist()
        if len(set(keys)) < len(keys):
            raise ViolationError(f"{where}: a key is there twice: {sorted(keys)}")
        values = dict(zip(keys, found["v"].to_pylist(), strict=True))
        for key, puts in self.puts.items():
            over = [put.began for put in puts if put.is_acknowledged and is_newest]
            may_be = {put.value for put in puts if not any(put.ended < began for began in over)}
            if values.get(key) not in may_be:
                raise ViolationError(
                    f"{where}: key {key} reads {values.get(key)}, and may be {may_be}: {puts}"
                )


@dataclass(slots=True)
class ShardLife:
    """Runs the operations of one actor on the shard."""

    machine: Machine
    enter: Callable[[Actor, Step], None]
    judge: ShardJudge
    actor: Actor
    steps: tuple[Step, ...]
    report: Any
    writer: Any = None

    def run(self) -> None:
        """Run all steps, unless the actor dies."""
        session = lancelet.Session(1 << 20, 1 << 20)
        for step in self.steps:
            self.enter(self.actor, step)
            self.machine.note(f"{self.actor.name:10} --- {step}")
            error: BaseException | None = None
            try:
                self._do(step, session)
            except LanceletError as caught:
                error = caught
            if self.actor.is_dead:
                raise Killed
            said = "acknowledged" if error is None else repr(error)[:150]
            self.machine.note(f"{self.actor.name:10} === {step.name}: {said}")
            self.report.operations += 1
            self.report.acknowledged += error is None
            if error is not None and not isinstance(error, _TELLING):
                raise ViolationError(
                    f"{step.name} failed with an unexpected error: {error!r}"
                ) from error

    def _do(self, step: Step, session: lancelet.Session) -> None:
        if step.kind in {"put", "remove", "close"} and self.writer is None:
            return
        match step.kind:
            case "open":
                self.writer = None
                self.writer = _open(session).mem_wal_writer(SHARD)
            case "put" | "remove":
                keys = sorted({step.amount % KEYS, step.amount // KEYS % KEYS})
                value = None if step.kind == "remove" else step.number
                puts = self.judge.begin(keys, value)
                if value is None:
                    self.writer.delete(pa.table({"id": keys}, pa.schema([SCHEMA.field(0)])))
                else:
                    self.writer.put(pa.table({"id": keys, "v": [value] * len(keys)}, SCHEMA))
                self.judge.acknowledged(puts)
            case "close":
                writer, self.writer = self.writer, None
                writer.close()
            case "merge":
                _open(session).compact_mem_wal()
            case "collect":
                _open(session).collect_mem_wal()
            case "clean":
                _open(session).cleanup_old_versions(
                    timedelta(seconds=step.amount % 2), error_if_tagged_old_versions=False
                )
            case "look" if self.writer is not None:
                seen = self.writer.lsm_scanner().to_table()
                self.judge.check(seen, step.name, is_newest=False)


def begin(session: lancelet.Session, *, stable_row_ids: bool) -> None:
    """Create an empty table with a log."""
    dataset = lancelet.write_dataset(
        SCHEMA.empty_table(),
        f"memory://{BUCKET}/{MAIN}",
        session=session,
        enable_stable_row_ids=stable_row_ids,
    )
    dataset.initialize_mem_wal(unsharded=True)


def at_the_end(judge: ShardJudge, session: lancelet.Session) -> None:
    """Check the final rows, first in the log and then in the table."""
    writer = _open(session).mem_wal_writer(SHARD)
    judge.check(writer.lsm_scanner().to_table(), "the log, replayed")
    writer.close()
    _open(session).compact_mem_wal()
    judge.check(_open(session).to_table(), "the table")
    _open(session).collect_mem_wal()
    judge.check(_open(session).mem_wal_writer(SHARD).lsm_scanner().to_table(), "what is left")
    found = _open(session).check("indices")
    wrong = [each for each in found if each.severity is not Severity.NOTE]
    if wrong:
        raise ViolationError(f"the table has errors: {wrong}")


def random_steps(random: Random, numbers: itertools.count[int]) -> tuple[Step, ...]:
    """Return the steps of an actor; writers start by claiming the shard."""
    if random.random() < 0.3:
        kinds = {kind: WEIGHTS[kind] for kind in ("merge", "collect", "clean")}
    else:
        kinds = WEIGHTS
    chosen = random.choices(list(kinds), list(kinds.values()), k=random.randint(2, 9))
    if kinds is WEIGHTS:
        chosen = ["open", *chosen]
    return tuple(Step(kind, next(numbers), random.randrange(1 << 10)) for kind in chosen)


def _open(session: lancelet.Session) -> lancelet.LanceDataset:
    return lancelet.dataset(f"memory://{BUCKET}/{MAIN}", session=session)

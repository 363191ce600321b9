"""Small scenarios of changes of rows and columns whose interleavings are all executed.

    d   deletes row 0          e   deletes row 1, of the same fragment
    u   adds 1 to v of row 1   w   adds 10 to v of row 1, in place, in a transaction of its own
    m   merges v of row 2, and no other column     f   deletes row 3, of the same fragment
    c   compacts               p   commits a compaction that another handle ran before
    k   adds the column k      s, t   two drivers commit one batch of a stream, which adds row 9

At the end, the table must have the effect of each acknowledged change once, and no effect of a
refused one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pyarrow as pa

import lancelet
from lancelet.change.publish import publish
from lancelet.dataset.write.operation_forms import operation_from_user
from lancelet.errors import (
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    StorageError,
)
from lancelet.fragment import write_fragments
from lancelet.io.memory import MemoryStore
from lancelet.optimize import Compaction
from lancelet.table.commit import CommitOptions
from lancelet.table.watermark import BatchWatermark
from tests.kit.simulation.casts import Scene
from tests.kit.simulation.interleavings import Cast
from tests.kit.simulation.judge import BUCKET, MAIN
from tests.kit.simulation.machine import seeded

_REFUSED: Final = (CommitConflictError, CommitContentionError)
_UNKNOWN: Final = (CommitOutcomeUnknownError, StorageError)
_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
_TABLE: Final = _SCHEMA.append(pa.field("t", pa.int64()))
_BATCH: Final = BatchWatermark("s", 1)

_Rows = dict[int, int]


def _open() -> lancelet.LanceDataset:
    session = lancelet.Session(1 << 20, 1 << 20)
    return lancelet.dataset(f"memory://{BUCKET}/{MAIN}", session=session)


def _rows(ids: Iterable[int]) -> pa.Table:
    found = list(ids)
    return pa.table({"id": found, "v": [0] * len(found), "t": found}, _TABLE)


@dataclass(slots=True)
class RowStage:
    """A table of two fragments with two rows each, and the results of a compaction of them."""

    stored: dict[str, Any]
    stable_row_ids: bool
    row_ids: dict[int, int]
    results: list[Any]

    @staticmethod
    @seeded()
    def built(*, stable_row_ids: bool = False) -> RowStage:
        """Create the table."""
        MemoryStore.reset(BUCKET)
        lancelet.write_dataset(
            _rows(range(4)),
            f"memory://{BUCKET}/{MAIN}",
            max_rows_per_file=2,
            enable_stable_row_ids=stable_row_ids,
        )
        dataset = _open()
        found = dataset.to_table(with_row_id=True)
        row_ids = dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
        results = [task.execute(dataset) for task in plan.tasks]
        return RowStage(dict(MemoryStore(BUCKET)._objects.by_key), stable_row_ids, row_ids, results)

    def scene(self, names: Iterable[str]) -> Scene:
        """Return the scenario of some actors."""

        def make() -> tuple[Cast, Callable[[Cast], None]]:
            cast = Cast()
            tasks: dict[str, Callable[[], object]] = {
                "d": lambda: _open().delete("id = 0"),
                "e": lambda: _open().delete("id = 1"),
                "u": lambda: _open().update({"v": "v + 1"}, where="id = 1"),
                "w": _rewrite,
                "m": _merge,
                "f": lambda: _open().delete("id = 3"),
                "c": lambda: _open().optimize.compact_files(target_rows_per_fragment=100),
                "p": lambda: Compaction.commit(_open(), self.results),
                "k": lambda: _open().add_columns({"k": "v - v + id"}),
                "s": _commit_batch,
                "t": _commit_batch,
            }
            for name in names:
                cast.add(name, tasks[name])
            return cast, self._judge

        return make

    def _judge(self, cast: Cast) -> None:
        options = {name: _may_have_happened(name, each) for name, each in cast.outcomes.items()}
        dataset = _open()
        found = dataset.to_table(with_row_id=True)
        ids = found["id"].to_pylist()
        assert len(ids) == len(set(ids)), f"a row is there twice: {ids}"
        values = dict(zip(ids, found["v"].to_pylist(), strict=True))
        expected = [
            rows
            for chosen in product(*options.values())
            for rows in _after(
                {name for name, is_done in zip(options, chosen, strict=True) if is_done}
            )
        ]
        assert values in expected, f"{values} after {cast.outcomes}, expected one of {expected}"
        if isinstance(cast.outcomes.get("k"), Exception) or "k" not in cast.outcomes:
            assert "k" not in found.column_names or options.get("k") == (False, True)
        else:
            assert found["k"].to_pylist() == ids
        if self.stable_row_ids:
            row_ids = dict(zip(ids, found["_rowid"].to_pylist(), strict=True))
            assert len(set(row_ids.values())) == len(row_ids)
            assert {key: row_ids[key] for key in row_ids if key in self.row_ids}.items() <= (
                self.row_ids.items()
            )
        assert list(dataset.check()) == []


def _may_have_happened(name: str, outcome: object) -> tuple[bool, ...]:
    if isinstance(outcome, _REFUSED):
        return (False,)
    if isinstance(outcome, _UNKNOWN):
        return (False, True)
    assert not isinstance(outcome, Exception), f"{name}: {outcome!r}"
    return (True,)


def _after(done: set[str]) -> list[_Rows]:
    """Return the rows after changes, in any order: an update of a deleted row has no effect."""
    rows = dict.fromkeys(range(4), 0)
    if "d" in done:
        del rows[0]
    if "e" in done:
        del rows[1]
    else:
        rows[1] = ("u" in done) + 10 * ("w" in done)
    if "m" in done:
        rows[2] = 5
    if "f" in done:
        del rows[3]
    if done & {"s", "t"}:
        rows[9] = 0
    return [rows]


def _rewrite() -> object:
    dataset = _open()
    for fragment in dataset.get_fragments():
        found = fragment.to_table()
        if 1 not in found["id"].to_pylist():
            continue
        before = found["v"].to_pylist()[found["id"].to_pylist().index(1)]
        metadata, fields, offsets = fragment.update_columns(
            pa.table({"id": [1], "v": [before + 10]}, _SCHEMA), "id", with_offsets=True
        )
        update = lancelet.LanceOperation.Update(
            updated_fragments=[metadata],
            fields_modified=fields,
            update_mode="rewrite_columns",
            updated_fragment_offsets={fragment.fragment_id: offsets},
        )
        return lancelet.LanceDataset.commit(dataset, update, read_version=dataset.version)
    return None


def _merge() -> object:
    source = pa.table({"id": [2], "v": [5]}, _SCHEMA)
    return _open().merge_insert("id").when_matched_update_all().execute(source)


def _commit_batch() -> object:
    dataset = _open()
    if _BATCH.is_reached(dataset.snapshot.manifest.config):
        return None
    made = write_fragments(_rows([9]), dataset)
    assert isinstance(made, list)
    operation = operation_from_user(lancelet.LanceOperation.Append(made))
    options = CommitOptions(watermark=_BATCH, checks_files=True)
    return publish(dataset.snapshot, operation, options)

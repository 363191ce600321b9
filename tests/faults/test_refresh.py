"""Goal: computed columns are right after a refresh that lost a request, and after the next one.

Method: every storage request of a refresh is refused once, and once done without a reply; and a
refresh is killed before and after each request, so that no later request takes effect. Rows are
then up to date, or reported as out of date; never wrong. The results of killed refreshes are used.
"""

import contextlib
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
from lancelet import ComputedColumn
from lancelet.change.columns.refresh import RefreshOptions, refresh_columns
from lancelet.errors import CommitOutcomeUnknownError, StorageError
from lancelet.io.wrapped import WrappedStore
from lancelet.table.computed_columns import stale_offsets
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import Fault, FaultyStore

_REQUESTS_MAX = 120
NO_SYNC = {"local_sync": "false"}


def twice(numbers):
    return pc.multiply(numbers, 2)


FUNCTIONS = {"twice": twice}


def table_at(path):
    data = pa.table({"n": range(12)})
    table = lancelet.write_dataset(data, path, enable_stable_row_ids=True, max_rows_per_file=4)
    table.add_columns(ComputedColumn("twice", twice, ("n",), pa.int64()))
    table.update({"n": "n + 100"}, where="n % 5 = 0")
    table.delete("n = 6")
    table.insert({"n": [50, 51]})
    return table


def check_reported(path):
    """Check that each row is right, or reported as out of date."""
    snapshot = open_snapshot(TableLocation.open(path, NO_SYNC))
    stale = {
        (int(fragment.id) << 32) + offset
        for fragment, offsets in stale_offsets(snapshot)
        for offset in offsets.tolist()
    }
    rows = lancelet.dataset(path).to_table(columns=["n", "twice", "_rowaddr"]).to_pylist()
    for row in rows:
        assert row["twice"] == 2 * row["n"] or row["_rowaddr"] in stale
    return len(stale), sorted(row["n"] for row in rows)


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
def test_rows_are_right_or_reported_at_every_request(tmp_path, fault: Fault, with_checkpoint):
    outcomes = set()
    for request in range(_REQUESTS_MAX):
        path = str(tmp_path / str(request))
        table_at(path)
        before, rows = check_reported(path)
        plain = TableLocation.open(path, NO_SYNC)
        store = FaultyStore(plain.store, fault, at=request)
        options = RefreshOptions(
            batch_rows=2, checkpoint=str(tmp_path / "notes") if with_checkpoint else None
        )
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            refresh_columns(open_snapshot(replace(plain, store=store)), FUNCTIONS, options)
        after, found = check_reported(path)
        assert found == rows
        outcomes.add(after)
        assert after <= before
        lancelet.dataset(path).refresh_columns(FUNCTIONS)
        assert check_reported(path) == (0, rows)
        if not store.fired:
            break
    assert not store.fired, "a refresh has more requests than were tried"
    assert request > 10
    assert len(outcomes) > 2


class Killed(BaseException):
    """The process was killed."""


class Kill:
    """Lets some requests pass, and then none."""

    def __init__(self, at, *, is_done):
        self.at, self.is_done, self.count = at, is_done, 0

    def request(self, request, action):
        del request
        self.count += 1
        if self.count <= self.at:
            return action()
        if self.count == self.at + 1 and self.is_done:
            action()
        raise Killed

    @property
    def fired(self):
        return self.count > self.at


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("is_done", [False, True])
def test_rows_are_right_or_reported_after_a_kill(tmp_path, is_done, with_checkpoint):
    computed = []

    def counted(numbers):
        computed.extend(numbers.to_pylist())
        return twice(numbers)

    for request in range(_REQUESTS_MAX):
        path = str(tmp_path / str(request))
        table_at(path)
        before, rows = check_reported(path)
        plain = TableLocation.open(path, NO_SYNC)
        kill = Kill(request, is_done=is_done)
        notes = str(tmp_path / "notes") if with_checkpoint else None
        options = RefreshOptions(batch_rows=2, checkpoint=notes)
        killed = replace(plain, store=WrappedStore(plain.store, kill))
        computed.clear()
        with contextlib.suppress(Killed):
            refresh_columns(open_snapshot(killed), {"twice": counted}, options)
        after, found = check_reported(path)
        assert (after <= before, found) == (True, rows)
        lancelet.dataset(path).refresh_columns({"twice": counted}, checkpoint=notes, batch_size=2)
        assert check_reported(path) == (0, rows)
        if with_checkpoint:
            assert len(computed) == before, "results of the killed refresh were not used"
        if not kill.fired:
            break
    assert not kill.fired, "a refresh has more requests than were tried"
    assert request > 10

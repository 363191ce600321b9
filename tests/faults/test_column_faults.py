"""Goal: column changes are atomic for every failing storage request.

Method: every request of a change is refused once, and once done without a reply. Afterwards we
and the reference read the rows from before or from after, and the change can be made again.
"""

import contextlib
import itertools
from dataclasses import replace

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.columns.add import add_columns
from lancelet.change.columns.alter import Alteration, alter_columns
from lancelet.change.columns.drop import drop_columns
from lancelet.change.columns.replace import replace_columns
from lancelet.change.columns.sources import Expressions
from lancelet.change.rows import read_rows
from lancelet.errors import CommitOutcomeUnknownError, StorageError
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.migrate_row_ids import migrate_to_stable_row_ids
from tests.kit.faults import FaultyStore

ROWS = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})

CHANGES = {
    "add": lambda now: add_columns(now, Expressions({"n": "a * 2"})),
    "cast": lambda now: alter_columns(now, [Alteration("a", data_type=pa.int16())]),
    "drop": lambda now: drop_columns(now, ["b"]),
    "replace": lambda now: replace_columns(now, ["b"], {0: read_rows(pa.table({"b": ["p", "q"]}))}),
    "migrate": migrate_to_stable_row_ids,
}


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_columns_is_whole_or_absent_at_every_request(tmp_path, change, fault):
    landed, expected = 0, None
    for request in itertools.count():
        uri = str(tmp_path / str(request))
        before = lancelet.write_dataset(ROWS, uri, max_rows_per_file=2).to_table()
        plain = TableLocation.open(uri, {"local_sync": "false"})
        store = FaultyStore(plain.store, fault, at=request)
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            CHANGES[change](open_snapshot(replace(plain, store=store)))
        latest = open_snapshot(plain)
        if latest.version == 1:
            assert lance.dataset(uri).to_table().equals(before)
            CHANGES[change](latest)
        else:
            landed += 1
        found = lancelet.dataset(uri)
        assert found.version == 2
        found.validate()
        expected = expected or found.to_table()
        assert found.to_table().equals(expected)
        assert lance.dataset(uri).to_table().equals(expected)
        if not store.fired:
            break
    assert request > 5
    assert landed > 1

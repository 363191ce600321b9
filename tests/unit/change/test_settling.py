"""The files of a change are synced, once, before a manifest refers to them."""

from dataclasses import replace

import pyarrow as pa
import pytest

import lancelet
from lancelet.change.columns.add import add_columns
from lancelet.change.columns.sources import Expressions
from lancelet.change.delete import delete_rows
from lancelet.change.merge.execute import merge_rows
from lancelet.change.merge.spec import Matched, MergeSpec
from lancelet.change.rows import read_rows
from lancelet.change.update import update_rows
from lancelet.change.write_table import WriteMode, WriteOptions, write_table
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore

ROWS = pa.table({"id": range(6), "n": range(6)})
UPSERT = MergeSpec(("id",), Matched.UPDATE, inserts=True)
CHANGES = {
    "append": lambda now: write_table(
        now.location, read_rows(ROWS), WriteMode.APPEND, WriteOptions()
    ),
    "delete": lambda now: delete_rows(now, "id = 1").snapshot,
    "update": lambda now: update_rows(now, {"n": "n + 1"}, "id = 1").snapshot,
    "upsert": lambda now: merge_rows(now, read_rows(ROWS.slice(1, 3)), UPSERT).snapshot,
    "columns": lambda now: add_columns(now, Expressions({"m": "n * 2"})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_are_waited_for_once_and_before_the_manifest(tmp_path, change):
    lancelet.write_dataset(ROWS, str(tmp_path), max_rows_per_file=2)
    plain = TableLocation.open(str(tmp_path))
    store = FaultyStore(plain.store)
    after = CHANGES[change](open_snapshot(replace(plain, store=store)))
    done = [request.operation for request in store.log]
    written = [place for place, each in enumerate(store.log) if names_data(each)]
    assert done.count("flush") == 1
    assert max(written) < done.index("flush") < done.index("put_if_absent")
    # Later operations on the new version are not deferred.
    assert after.location.store.inner._flushes is None


def names_data(request):
    return request.is_change and request.path.startswith(("data/", "_deletions/"))

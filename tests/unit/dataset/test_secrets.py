"""Storage options may be secrets and never appear in output or errors."""

import logging
import pickle
import traceback

import pyarrow as pa
import pytest

import lancelet
from lancelet.change.blob_input import BlobPolicy
from lancelet.errors import LanceletError
from lancelet.jobs.add_columns import FolderCheckpoint
from lancelet.jobs.part import plan_parts
from lancelet.jobs.scan_task import ScanTask
from lancelet.jobs.split import plan_splits
from lancelet.jobs.table_ref import TableRef
from lancelet.table.handlers.choose import handler_of
from lancelet.table.location import TableLocation

SECRET = "hunter2-4711"
OPTIONS = {"aws_secret_access_key": SECRET, "aws_access_key_id": SECRET, "local_sync": "false"}


@pytest.fixture
def dataset(tmp_path):
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"x": [1]}), uri)
    return lancelet.dataset(
        uri, storage_options=OPTIONS, base_store_params={"s3://b/base": OPTIONS}
    )


def test_nothing_that_is_shown_has_a_secret(dataset):
    table = TableRef.of(dataset.uri, OPTIONS)
    (split,) = plan_splits(table.open())
    for shown in (
        dataset,
        dataset.handle,
        dataset.handle.options,
        dataset.snapshot,
        dataset.snapshot.location,
        dataset.scanner(),
        table,
        ScanTask(table, ("x",), split),
        plan_parts(table, table.open()),
        BlobPolicy(storage_options=OPTIONS),
        FolderCheckpoint.of(dataset.uri, tuple(OPTIONS.items()), "job"),
        handler_of("s3+ddb://b/t?ddbTableName=x", OPTIONS),
        handler_of("s3://b/t", {"manifest_store": f"postgresql://u:{SECRET}@h/d"}),
        TableLocation.open("s3://b/t", OPTIONS),
    ):
        assert SECRET not in repr(shown)
        assert SECRET not in str(shown)


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS | {"no_such_option": SECRET},
        OPTIONS | {"expires_at_millis": "soon"},
        OPTIONS | {"timeout": "soon"},
        {"manifest_store": f"oracle://u:{SECRET}@h/d"},
        {"manifest_store": f"postgresql://u:{SECRET}@127.0.0.1:1/d"},
    ],
    ids=max,
)
def test_no_error_has_a_secret(options):
    with pytest.raises((LanceletError, OSError)) as raised:
        lancelet.dataset("s3://127.0.0.1:1/t", storage_options={**options, "max_retries": "0"})
    text = "".join(traceback.format_exception(raised.value))
    assert SECRET not in text
    assert SECRET not in repr(getattr(raised.value, "facts", None))


def test_nothing_that_is_written_or_logged_has_a_secret(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    uri = str(tmp_path / "t.lance")
    rows = pa.table({"x": range(50)})
    dataset = lancelet.write_dataset(rows, uri, storage_options=OPTIONS)
    dataset.insert(rows)
    dataset.create_scalar_index("x", "BTREE")
    dataset.delete("x = 3")
    dataset.optimize.compact_files()
    dataset.tags.create("first", 1)
    dataset.create_branch("side")
    dataset.shallow_clone(str(tmp_path / "clone"), dataset.version, storage_options=OPTIONS)
    assert SECRET not in caplog.text
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
    plan = dataset.scanner(filter="x = 7").analyze_plan()
    assert SECRET not in plan


def test_an_error_that_leaves_the_process_has_no_secret():
    with pytest.raises((LanceletError, OSError)) as raised:
        lancelet.dataset(
            "s3://127.0.0.1:1/t", storage_options={**OPTIONS, "max_retries": "0", "timeout": "1s"}
        )
    assert SECRET.encode() not in pickle.dumps(raised.value)

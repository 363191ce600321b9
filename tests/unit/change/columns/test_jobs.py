"""Adding columns with concurrent writers: no repeated work and no leftover files."""

import itertools
import json
import subprocess
import sys

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.columns.fields import ColumnError
from lancelet.errors import CommitConflictError, InvalidInputError, UnsupportedError

ROWS = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})


@pytest.fixture
def dataset(tmp_path):
    return lancelet.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2)


def data_files(dataset):
    from pathlib import Path

    return sorted(path.name for path in (Path(dataset.uri) / "data").iterdir())


class Seen:
    """Counts the rows that a function is called with, and does something in between."""

    def __init__(self, between=None):
        self.rows = []
        self.between = between

    def __call__(self, batch):
        self.rows.append(batch["a"].to_pylist())
        if self.between is not None:
            self.between, between = None, self.between
            between()
        return pa.record_batch({"n": pa.array([2 * value for value in batch["a"].to_pylist()])})

    def udf(self, **options):
        return lancelet.batch_udf(pa.schema([("n", pa.int64())]), **options)(self)


def test_after_an_append_only_its_rows_are_computed(dataset):
    other = lancelet.dataset(dataset.uri)
    seen = Seen(lambda: other.insert(pa.table({"a": [5], "b": ["v"]})))
    dataset.add_columns(seen.udf())
    assert seen.rows == [[1, 2], [3, 4], [5]]
    assert dataset.to_table()["n"].to_pylist() == [2, 4, 6, 8, 10]
    assert len(data_files(dataset)) == 6


def test_concurrently_deleted_rows_stay_deleted_without_recomputation(dataset):
    other = lancelet.dataset(dataset.uri)
    seen = Seen(lambda: other.delete("a = 2"))
    dataset.add_columns(seen.udf())
    assert seen.rows == [[1, 2], [3, 4]]
    assert dataset.to_table()["n"].to_pylist() == [2, 6, 8]


def test_rows_updated_meanwhile_are_computed_from_their_new_values(dataset):
    other = lancelet.dataset(dataset.uri)
    dataset.add_columns(Seen(lambda: other.update({"a": "a + 100"}, "a = 2")).udf())
    assert sorted(dataset.to_table()["n"].to_pylist()) == [2, 6, 8, 204]


def test_columns_that_others_add_meanwhile_keep_their_ids(dataset):
    other = lancelet.dataset(dataset.uri)
    dataset.add_columns(Seen(lambda: other.add_columns({"c": "a + 1"})).udf())
    assert dataset.to_table().select(["c", "n"]).to_pylist() == [
        {"c": value + 1, "n": 2 * value} for value in (1, 2, 3, 4)
    ]
    assert lance.dataset(dataset.uri).to_table().equals(dataset.to_table())
    assert len(data_files(dataset)) == 6


def test_a_reader_provides_its_schema(dataset):
    dataset.add_columns(pa.table({"n": [1, 2, 3, 4]}).to_reader())
    assert dataset.to_table()["n"].to_pylist() == [1, 2, 3, 4]
    with pytest.raises(InvalidInputError, match="Must provide schema"):
        dataset.add_columns(iter(pa.table({"m": [1, 2, 3, 4]}).to_batches()))


def test_a_stream_cannot_serve_rows_that_came_later(dataset):
    other = lancelet.dataset(dataset.uri)

    def batches():
        yield pa.record_batch({"n": [1, 2]})
        other.insert(ROWS.slice(0, 1))
        yield pa.record_batch({"n": [3, 4]})

    with pytest.raises(CommitConflictError) as conflict:
        dataset.add_columns(batches(), reader_schema=pa.schema([("n", pa.int64())]))
    assert conflict.value.retryable
    assert len(data_files(dataset)) == 3


def test_a_failed_function_leaves_no_file(dataset):
    calls = itertools.count()

    def fail(batch):
        if next(calls):
            raise ZeroDivisionError("none of my rows")
        return pa.record_batch({"n": batch["a"]})

    with pytest.raises(ColumnError, match="none of my rows") as raised:
        dataset.add_columns(lancelet.batch_udf(pa.schema([("n", pa.int64())]))(fail))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert len(data_files(dataset)) == 2
    assert dataset.version == 1


@pytest.mark.parametrize(
    ("values", "message"), [([1, 2, 3], "ended before"), ([1, 2, 3, 4, 5], "more values")]
)
def test_streams_must_have_a_row_for_each_row(dataset, values, message):
    with pytest.raises(ColumnError, match=message):
        dataset.add_columns(pa.table({"n": values}))
    assert len(data_files(dataset)) == 2


@pytest.mark.parametrize(
    "result",
    [
        lambda _: pa.record_batch({"n": [1]}),
        lambda batch: pa.record_batch({"m": batch["a"]}),
        lambda batch: pa.record_batch({"n": batch["b"]}),
    ],
)
def test_functions_must_return_the_declared_columns(dataset, result):
    with pytest.raises(OSError, match="function"):
        dataset.add_columns(lancelet.batch_udf(pa.schema([("n", pa.int64())]))(result))
    assert len(data_files(dataset)) == 2


def test_functions_are_given_the_columns_and_rows_requested(dataset):
    dataset.delete("a = 2")
    seen = []

    def note(batch):
        seen.append((batch.schema.names, batch.num_rows, batch["_rowaddr"].to_pylist()))
        return pa.record_batch({"n": [0] * batch.num_rows})

    udf = lancelet.batch_udf(pa.schema([("n", pa.int64())]))(note)
    dataset.add_columns(udf, read_columns=["b", "_rowaddr"], batch_size=1)
    second = 1 << 32
    assert seen == [(["b", "_rowaddr"], 1, [address]) for address in (0, second, second + 1)]


KILLED = """
import os, sys
import lancelet, pyarrow as pa
calls = 0
def double(batch):
    global calls
    calls += 1
    if calls > int(sys.argv[3]):
        os._exit(9)
    print(batch["a"].to_pylist(), flush=True)
    return pa.record_batch({"n": pa.array([2 * a for a in batch["a"].to_pylist()])})
udf = lancelet.batch_udf(pa.schema([("n", pa.int64())]), checkpoint_file=sys.argv[2])(double)
lancelet.dataset(sys.argv[1]).add_columns(udf, batch_size=1)
"""


def run_killed(dataset, checkpoint, calls):
    command = [sys.executable, "-c", KILLED, dataset.uri, str(checkpoint), str(calls)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_job_that_is_killed_continues_where_it_was(dataset, tmp_path):
    checkpoint = tmp_path / "job.sqlite"
    assert run_killed(dataset, checkpoint, 1) == (9, [[1]])
    assert run_killed(dataset, checkpoint, 2) == (9, [[2], [3]])
    assert checkpoint.exists()
    assert lancelet.dataset(dataset.uri).version == 1
    assert run_killed(dataset, checkpoint, 9) == (0, [[4]])
    found = lance.dataset(dataset.uri)
    assert found.to_table()["n"].to_pylist() == [2, 4, 6, 8]
    assert not checkpoint.exists()
    assert len(data_files(dataset)) == 4


def test_a_checkpoint_is_not_taken_for_rows_that_changed(dataset, tmp_path):
    checkpoint = tmp_path / "job.sqlite"
    assert run_killed(dataset, checkpoint, 3)[0] == 9
    dataset.delete("a = 3")
    dataset.update({"a": "10"}, "a = 1")
    assert run_killed(dataset, checkpoint, 9)[0] == 0
    rows = lance.dataset(dataset.uri).to_table()
    assert sorted(rows["n"].to_pylist()) == [4, 8, 20]
    assert [2 * value for value in rows["a"].to_pylist()] == rows["n"].to_pylist()


def test_a_checkpoint_whose_file_was_cleaned_up_is_computed_again(dataset, tmp_path):
    checkpoint = tmp_path / "job.sqlite"
    before = set(data_files(dataset))
    assert run_killed(dataset, checkpoint, 3)[0] == 9
    (orphan,) = set(data_files(dataset)) - before
    (tmp_path / "t" / "data" / orphan).unlink()
    assert run_killed(dataset, checkpoint, 9) == (0, [[1], [2], [4]])
    assert lance.dataset(dataset.uri).to_table()["n"].to_pylist() == [2, 4, 6, 8]


def test_a_dry_run_reports_what_is_written_and_writes_nothing(dataset):
    files = data_files(dataset)
    added = dataset.add_columns({"n": "a + 1"}, dry_run=True)
    assert (added.operation, added.rows, added.files) == ("Merge", 4, 2)
    cast = dataset.alter_columns({"path": "a", "data_type": pa.int8()}, dry_run=True)
    assert (cast.operation, cast.files) == ("Merge", 2)
    renamed = dataset.alter_columns({"path": "a", "name": "c"}, dry_run=True)
    assert (renamed.operation, renamed.files, renamed.bytes) == ("Project", 0, 0)
    assert dataset.drop_columns(["a"], dry_run=True).files == 0
    joined = dataset.merge(pa.table({"a": [1], "n": [1]}), "a", dry_run=True)
    assert (joined.files, joined.bytes > 0) == (2, True)
    moved = dataset.migrate_to_stable_row_ids(dry_run=True)
    assert (moved.operation, moved.rows, moved.files) == ("Merge", 4, 0)
    assert data_files(dataset) == files
    assert lancelet.dataset(dataset.uri).version == 1


def test_a_dry_run_names_conflicts(dataset):
    lancelet.dataset(dataset.uri).insert(ROWS)
    (conflict,) = dataset.add_columns({"n": "a"}, dry_run=True).conflicts
    assert "Append" in conflict


@pytest.mark.parametrize("kind", [pa.int64(), pa.bool_(), pa.list_(pa.int8())])
def test_files_of_0_1_do_not_lose_nulls_in_silence(tmp_path, kind):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), tmp_path, data_storage_version="0.1")
    with pytest.raises(UnsupportedError, match="storing nulls"):
        dataset.add_columns(pa.table({"n": pa.nulls(1, kind)}))
    dataset.add_columns(pa.table({"n": pa.nulls(1, pa.string())}))
    assert dataset.to_table()["n"].to_pylist() == [None]


@pytest.mark.parametrize("transforms", [3, {"n": 1}, {1: "n"}, object()])
def test_invalid_column_sources_are_type_errors(dataset, transforms):
    with pytest.raises(TypeError):
        dataset.add_columns(transforms)

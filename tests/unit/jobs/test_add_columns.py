"""Backfills in tasks compute every row once, despite crashes and concurrent writes."""

from unittest.mock import Mock

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet.jobs.add_columns as module
from lancelet.change.columns.sources import Expressions, Function
from lancelet.errors import InvalidInputError
from lancelet.jobs.add_columns import BackfillOptions, FolderCheckpoint, add_columns
from lancelet.jobs.engine import Job
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.table_ref import TableRef

TWICE = Expressions({"twice": "id * 2"})


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(50)}), path, max_rows_per_file=10)
    lance.dataset(path).delete("id in (3, 33)")
    return path


@pytest.fixture
def job():
    return Job(LocalEngine(1))


def check(uri):
    found = lance.dataset(uri).to_table().to_pydict()
    assert found["twice"] == [2 * i for i in found["id"]]
    return found["id"]


def test_expressions_fill_every_row_in_one_version(uri, job):
    made = add_columns(job, TableRef.of(uri), TWICE, BackfillOptions(bytes_per_task=1))
    assert len(check(uri)) == 48
    assert lance.dataset(uri).version == made.version == 3
    assert job.report.phases[0].tasks == 5
    assert job.report.work.rows == 48


def test_functions_fill_every_row(uri, job):
    schema = pa.schema([("twice", pa.int64())])
    call = lambda batch: pa.record_batch({"twice": pc.multiply(batch["id"], 2)})  # noqa: E731
    add_columns(job, TableRef.of(uri), Function(call, schema, ("id",)))
    check(uri)


def test_rows_that_others_add_meanwhile_are_filled_too(uri, job, monkeypatch):
    plan, seen = module.plan_parts, []

    def with_rival(table, snapshot, *, fragments, bytes_per_task):
        seen.append(list(fragments))
        if len(seen) == 1:
            lance.write_dataset(pa.table({"id": [100, 101]}), uri, mode="append")
        return plan(table, snapshot, fragments=fragments, bytes_per_task=bytes_per_task)

    monkeypatch.setattr(module, "plan_parts", with_rival)
    add_columns(job, TableRef.of(uri), TWICE)
    assert seen == [[0, 1, 2, 3, 4], [5]]
    assert check(uri)[-2:] == [100, 101]


def test_a_job_that_was_killed_continues_where_it_was(uri, job, tmp_path, monkeypatch):
    notes = FolderCheckpoint.of(str(tmp_path / "notes"), (), "twice")
    options = BackfillOptions(notes, bytes_per_task=1)
    write, done = module.add_columns_to_fragment, []

    def die_at_the_third(snapshot, fragment, source):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(fragment.id)
        return write(snapshot, fragment, source)

    monkeypatch.setattr(module, "add_columns_to_fragment", die_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        add_columns(job, TableRef.of(uri), TWICE, options)
    assert lance.dataset(uri).version == 2
    # A fragment that has changed since is done again; one with more deleted rows serves.
    lance.dataset(uri).delete("id = 1")
    monkeypatch.setattr(
        module, "add_columns_to_fragment", lambda *a: done.append(a[1].id) or write(*a)
    )
    add_columns(job, TableRef.of(uri), TWICE, options)
    assert done == [0, 1, 2, 3, 4]
    assert len(check(uri)) == 47
    assert not list((tmp_path / "notes").rglob("*.json"))


def test_a_note_whose_file_is_gone_is_not_used(uri, job, tmp_path, monkeypatch):
    notes = FolderCheckpoint.of(str(tmp_path / "notes"), (), "twice")
    publish = module.publish
    monkeypatch.setattr(module, "publish", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        add_columns(job, TableRef.of(uri), TWICE, BackfillOptions(notes))
    monkeypatch.setattr(module, "publish", publish)
    known = {file.path for f in lance.dataset(uri).get_fragments() for file in f.data_files()}
    written = [p for p in (tmp_path / "t.lance" / "data").iterdir() if p.name not in known]
    assert len(written) == 5
    written[0].unlink()
    add_columns(job, TableRef.of(uri), TWICE, BackfillOptions(notes))
    check(uri)


def test_a_column_that_is_there_is_rejected(uri, job):
    with pytest.raises(InvalidInputError):
        add_columns(job, TableRef.of(uri), Expressions({"id": "id"}))

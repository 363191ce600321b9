"""Deleting, updating and compacting in tasks gives what the reference gives, in one version."""

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitConflictError
from lancelet.jobs.change_rows import ChangeOptions, delete_part, delete_rows, update_rows
from lancelet.jobs.compact import compact
from lancelet.jobs.engine import Job
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.table_ref import TableRef
from lancelet.upkeep.compact.options import CompactionOptions

SMALL = ChangeOptions(bytes_per_task=1)


@pytest.fixture(params=[False, True], ids=["addresses", "stable-ids"])
def uri(tmp_path, request):
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(50), "name": [f"row {i}" for i in range(50)]})
    lance.write_dataset(rows, path, max_rows_per_file=10, enable_stable_row_ids=request.param)
    return path


@pytest.fixture
def job():
    return Job(LocalEngine(1))


def rows_of(uri):
    return lance.dataset(uri).to_table().sort_by("id").to_pydict()


def test_rows_are_deleted_in_every_part(uri, job):
    done = delete_rows(job, TableRef.of(uri), "id % 3 = 0 or id between 20 and 29", SMALL)
    left = [i for i in range(50) if i % 3 and not 20 <= i < 30]
    assert rows_of(uri)["id"] == left
    assert (done.version, done.num_rows) == (2, 50 - len(left))
    assert len(lance.dataset(uri).get_fragments()) == 4
    assert job.report.phases[0].tasks == 5
    assert job.report.work.rows == done.num_rows


def test_nothing_to_delete_makes_no_version(uri, job):
    assert delete_rows(job, TableRef.of(uri), "id > 100", SMALL).num_rows == 0
    assert lance.dataset(uri).version == 1


def test_rows_are_updated_in_every_part_and_keep_their_ids(uri, job):
    before = lance.dataset(uri).to_table(columns=["id"], with_row_id=True)
    done = update_rows(job, TableRef.of(uri), {"name": "concat(name, '!')"}, "id % 7 = 0", SMALL)
    assert done.num_rows == 8
    expected = [f"row {i}!" if i % 7 == 0 else f"row {i}" for i in range(50)]
    assert rows_of(uri) == {"id": list(range(50)), "name": expected}
    if lance.dataset(uri).has_stable_row_ids:
        after = lance.dataset(uri).to_table(columns=["id"], with_row_id=True)
        assert after.sort_by("id") == before.sort_by("id")


def test_a_change_is_done_again_when_others_changed_the_same_rows(uri, job, monkeypatch):
    import lancelet.jobs.change_rows as module

    done = []

    def with_rival(predicate, part):
        if not done:
            done.append(lance.dataset(uri).update({"name": "'rival'"}, where="id = 3"))
        return delete_part(predicate, part)

    monkeypatch.setattr(module, "delete_part", with_rival)
    assert delete_rows(job, TableRef.of(uri), "name = 'row 3' or id = 4", SMALL).num_rows == 1
    assert rows_of(uri)["name"][3] == "rival"
    assert 4 not in rows_of(uri)["id"]


def test_a_change_gives_up_when_it_may_not_try_again(uri, job, monkeypatch):
    import lancelet.jobs.change_rows as module
    from lancelet.change.publish import Retries

    def with_rival(predicate, part):
        lance.dataset(uri).update({"name": "concat(name, '+')"}, where="id = 3")
        return delete_part(predicate, part)

    monkeypatch.setattr(module, "delete_part", with_rival)
    options = ChangeOptions(retries=Retries(max_retries=1))
    with pytest.raises(CommitConflictError):
        delete_rows(job, TableRef.of(uri), "id = 3", options)


def test_compaction_in_tasks_keeps_every_row(uri, job):
    lance.dataset(uri).delete("id = 7")
    before = rows_of(uri)
    done = compact(job, TableRef.of(uri), CompactionOptions(target_rows_per_fragment=20))
    assert rows_of(uri) == before
    assert done.metrics.fragments_removed == 5
    assert len(lance.dataset(uri).get_fragments()) == done.metrics.fragments_added
    assert job.report.work.rows == 49
    lancelet.dataset(uri).validate()


def test_jobs_run_in_other_processes(uri):
    job = Job(LocalEngine(2))
    assert delete_rows(job, TableRef.of(uri), "id < 25", SMALL).num_rows == 25
    assert len(rows_of(uri)["id"]) == 25
    assert job.report.work.requests > 0

"""A checkpoint returns the stored results of the same job and rows only."""

import pyarrow as pa
import pytest

from lancelet.change.columns.checkpoint import BatchInfo, BatchUDFCheckpoint
from lancelet.errors import InvalidInputError

BATCH = pa.record_batch({"b": [1, None], "s": [{"x": "y"}, None]})


@pytest.fixture
def kept(tmp_path):
    checkpoint = BatchUDFCheckpoint(tmp_path / "job.sqlite")
    checkpoint.begin("job")
    checkpoint.insert_batch(BatchInfo(3, 0), BATCH, "rows")
    return checkpoint


def test_results_come_back_in_another_process(kept):
    again = BatchUDFCheckpoint(kept.path)
    again.begin("job")
    assert again.get_batch((3, 0), "rows").equals(BATCH)
    assert again.get_batch((3, 1), "rows") is None
    assert again.get_batch((4, 0), "rows") is None


def test_results_for_other_rows_are_not_taken(kept):
    assert kept.get_batch((3, 0), "other rows") is None
    kept.insert_batch((3, 0), BATCH.slice(1), "other rows")
    assert kept.get_batch((3, 0), "rows") is None
    assert kept.get_batch((3, 0), "other rows").equals(BATCH.slice(1))


def test_results_of_another_job_are_dropped(kept):
    kept.insert_fragment(1, "{}")
    kept.begin("another job")
    assert kept.get_batch((3, 0), "rows") is None
    assert kept.get_fragment(1) is None


def test_a_fragment_that_is_done_needs_no_batches(kept):
    kept.insert_fragment(3, "done")
    assert kept.get_fragment(3) == "done"
    assert kept.get_batch((3, 0), "rows") is None


def test_cleanup_leaves_no_file(kept):
    kept.cleanup()
    assert not kept.path.exists()
    kept.cleanup()


def test_a_file_that_is_no_checkpoint_is_rejected(tmp_path):
    path = tmp_path / "text"
    path.write_text("this is no database, and long enough to be taken for a page of one" * 20)
    with pytest.raises(InvalidInputError, match="cannot be used"):
        BatchUDFCheckpoint(path)

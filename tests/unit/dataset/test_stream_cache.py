"""A cached stream yields the same batches again, and leaves no files."""

import pyarrow as pa
import pytest

from lancelet._dataset.cache import CachedDataset
from lancelet.errors import InvalidInputError

BATCHES = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3]})]


@pytest.mark.parametrize("batches", [BATCHES, []])
def test_every_pass_yields_the_rows_of_the_stream(tmp_path, batches):
    with CachedDataset(iter(batches), tmp_path) as cached:
        assert list(cached) == list(cached) == list(cached) == batches
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_second_pass_waits_for_the_first(tmp_path):
    cached = CachedDataset(iter(BATCHES), tmp_path)
    first = iter(cached)
    next(first)
    with pytest.raises(RuntimeError, match="first pass"):
        iter(cached)
    list(first)
    assert list(cached) == BATCHES
    cached.close()


def test_non_folder_input_is_rejected():
    with pytest.raises(InvalidInputError):
        CachedDataset(iter(BATCHES), 3)
    with pytest.raises(InvalidInputError):
        CachedDataset(iter(BATCHES), False)

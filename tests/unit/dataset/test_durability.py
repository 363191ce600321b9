"""Whether commits wait for the disk, as an argument and as a storage option."""

import os

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError

ROWS = pa.table({"x": [1, 2, 3]})


@pytest.fixture
def flushes(monkeypatch):
    """The flushed files and folders so far."""
    found, flush = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: found.append(handle) or flush(handle))
    return found


def test_writes_are_synced_by_default(tmp_path, flushes):
    lancelet.write_dataset(ROWS, tmp_path / "a")
    assert flushes
    flushes.clear()
    uri = tmp_path / "b"
    lancelet.write_dataset(ROWS, uri, durability="written")
    lancelet.write_dataset(ROWS, uri, mode="append", durability="written")
    lancelet.write_dataset(ROWS, uri, mode="append", storage_options={"durability": "written"})
    lancelet.dataset(uri, durability="written").delete("x = 1")
    assert not flushes
    lancelet.dataset(uri, durability="flushed").delete("x = 2")
    assert flushes
    assert lancelet.dataset(uri).count_rows() == 3


def test_durability_is_one_of_two_and_given_once(tmp_path):
    dataset = lancelet.write_dataset(ROWS, tmp_path / "a")
    with pytest.raises(InvalidInputError, match="flushed or written"):
        lancelet.dataset(dataset.uri, durability="sometimes")
    with pytest.raises(InvalidInputError, match="given twice"):
        lancelet.dataset(
            dataset.uri, storage_options={"durability": "flushed"}, durability="written"
        )
    with pytest.raises(InvalidInputError, match="durability of an open dataset"):
        lancelet.write_dataset(ROWS, dataset, mode="append", durability="written")

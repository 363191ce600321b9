"""Snapshots go with their last user, and their files with them, without a search for cycles."""

import gc

import pyarrow as pa
import pytest

import lancelet
from lancelet.io.mapped import MappedReader


@pytest.fixture
def no_search_for_cycles():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _open_maps():
    return sum(type(found) is MappedReader for found in gc.get_objects())


@pytest.mark.usefixtures("no_search_for_cycles")
def test_a_table_that_was_read_lets_go_of_its_files(tmp_path):
    uri = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"x": range(100), "y": ["a", "b"] * 50}), uri)
    before = _open_maps()
    dataset = lancelet.dataset(uri)
    dataset.to_table(filter="x > 50")
    dataset.take([3])
    dataset.count_rows("y = 'a'")
    assert _open_maps() > before
    del dataset
    assert _open_maps() == before

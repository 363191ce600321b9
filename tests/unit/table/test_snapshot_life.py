"""Snapshots go with their last user, and their files with them, without a search for cycles."""

import gc
from collections.abc import Collection

import pyarrow as pa
import pytest

import lancelet
from lancelet.format.schema import Schema
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


def test_projections_of_files_are_cached_across_versions(tmp_path, monkeypatch):
    worked_out = []
    project = Schema.project_ids

    def counted(schema: Schema, field_ids: Collection[int]) -> Schema:
        worked_out.append(tuple(field_ids))
        return project(schema, field_ids)

    lancelet.write_dataset(pa.table({"only_here": [1, 2, 3], "b": [4, 5, 6]}), tmp_path / "t")
    monkeypatch.setattr(Schema, "project_ids", counted)
    for value in (1, 2, 3):
        table = lancelet.dataset(tmp_path / "t")
        table.delete(f"only_here = {value}")
        assert table.to_table().num_rows == 3 - value
    assert len(worked_out) == 1

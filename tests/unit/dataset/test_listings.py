"""Results are displayed as tables in terminals and notebooks, and remain lists and dicts."""

import json
import pickle

import pytest

import lancelet


@pytest.fixture
def dataset(tmp_path):
    dataset = lancelet.write_dataset({"id": range(1200)}, tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    return dataset


def test_versions_are_displayed_as_a_table(dataset):
    versions = dataset.versions()
    lines = repr(versions).splitlines()
    assert lines[0].split() == ["version", "timestamp", "rows", "fragments", "size"]
    assert lines[1].split()[0] == "1"
    assert "1,200" in lines[1]
    assert len(lines) == 1 + len(versions)
    assert "<table>" in versions._repr_html_()
    assert isinstance(versions, list)
    assert versions == [dict(version) for version in versions]
    assert pickle.loads(pickle.dumps(versions)) == versions


def test_long_listings_show_their_length(dataset):
    for _ in range(25):
        dataset.update_config({"a": "b"})
    assert repr(dataset.versions()).endswith("... 7 more rows")


def test_indices_are_displayed_as_tables(dataset):
    lines = repr(dataset.describe_indices()).splitlines()
    assert lines[0].split() == ["name", "kind", "columns", "rows", "size", "segments"]
    assert lines[1].split()[:4] == ["id_idx", "BTree", "id", "1,200"]
    with pytest.warns(DeprecationWarning, match="describe_indices"):
        assert repr(dataset.list_indices()).startswith("name")
    statistics = dataset.stats.index_stats("id_idx")
    rows = [line.split() for line in repr(statistics).splitlines()]
    assert ["num_indexed_rows", "1,200"] in rows
    assert json.loads(json.dumps(statistics))["num_indexed_rows"] == 1200
    assert "<table>" in statistics._repr_html_()


def test_an_empty_listing_names_its_columns():
    dataset = lancelet.write_dataset({"id": [1]}, "memory://listings-empty/t")
    empty = dataset.describe_indices()
    assert repr(empty) == "no rows (name, kind, columns, rows, size, segments)"
    assert empty == []


def test_printing_a_query_shows_its_first_rows(dataset):
    pytest.importorskip("duckdb")
    query = lancelet.sql("SELECT id FROM t ORDER BY id", tables={"t": dataset})
    lines = str(query).splitlines()
    assert lines[:3] == ["id", " 0", " 1"]
    assert lines[-1] == "... 1,180 more rows"
    assert "<table>" in query._repr_html_()
    assert repr(query).startswith("SqlQuery(")

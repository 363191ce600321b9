"""Results are displayed as tables in terminals and notebooks, and remain lists and dicts."""

import json
import pickle

import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.show.listing import Facts, table_of


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
    assert repr(query).splitlines() == [*lines[:-1], "... more rows"]


def test_values_of_a_table_are_printed_in_one_line_without_control_characters():
    rows = pa.table({"a\nb": ["x\ny", "\x1b[2J"]})
    assert table_of(rows).splitlines() == ["a b", "x y", "\\x1b[2J"]


def test_a_query_of_a_dataset_is_displayed_as_its_first_rows(dataset):
    pytest.importorskip("datafusion")
    builder = dataset.sql("SELECT id FROM dataset WHERE id < 2")
    assert repr(builder) == repr(builder.build()) == "id\n 0\n 1"
    assert "<table>" in builder._repr_html_()
    invalid = dataset.sql("SELECT nothing FROM dataset")
    assert "nothing" in repr(invalid)
    assert invalid._repr_html_().startswith("<pre>")


def test_results_of_changes_are_displayed_with_one_line_per_number(dataset):
    updated = dataset.update({"id": "id + 1"}, where="id = 0")
    assert repr(updated) == "num_rows_updated  1"
    assert updated == {"num_rows_updated": 1}
    assert repr(dataset.delete("id = 5")) == "num_deleted_rows  1"
    merge = dataset.merge_insert("id").when_not_matched_insert_all()
    merged = merge.execute({"id": [9, 7000]})
    assert repr(merged).splitlines() == [
        "num_inserted_rows  1",
        "num_updated_rows   0",
        "num_deleted_rows   0",
    ]
    assert "<table>" in merged._repr_html_()
    compacted = dataset.optimize.compact_files()
    assert repr(compacted).splitlines()[0] == f"fragments removed  {compacted.fragments_removed}"
    cleaned = dataset.cleanup_old_versions()
    assert "old versions" in repr(cleaned)
    explained = dataset.explain_cleanup_old_versions(include_files=True)
    assert repr(explained).startswith("cleanup, as of version")
    assert repr(dataset.diff(1, 2)).startswith("version 1 -> 2\n")
    for each in (compacted, cleaned, explained, dataset.diff(1, 2)):
        assert each._repr_html_().startswith("<pre>")


def test_nested_statistics_are_indented(dataset):
    lines = repr(dataset.stats.index_stats("id_idx")).splitlines()
    nested = lines[lines.index("indices") + 1 :]
    assert nested[0].startswith("  num_pages")
    shown = repr(Facts({"a": 1, "parts": [{"n": 1, "size": 20}, {"n": 2, "size": 1}]}))
    assert shown == "a  1\nparts\n  n  size\n  1    20\n  2     1"

"""Datasets read and written by both implementations are equal."""

import decimal
import json
import pickle
import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet

HISTORICAL = Path(__file__).parents[1] / "golden" / "historical"
VERSIONS = ["0.1", "2.0", "2.1", "2.2"]


def rows(start, stop):
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if i % 7 == 3 else f"row {i}" for i in ids]),
            "s": pa.array(
                [{"x": i, "y": str(i % 5)} for i in ids],
                pa.struct([("x", pa.int32()), ("y", pa.string())]),
            ),
            "v": pa.FixedSizeListArray.from_arrays(
                pa.array(np.arange(2 * start, 2 * stop), pa.float32()), 2
            ),
            "tags": pa.array([[str(j) for j in range(i % 3)] for i in ids]),
            "born": pa.array([i * 86_400_000_000 for i in ids], pa.timestamp("us")),
        }
    )


def both(path):
    return lancelet.dataset(path), lance.dataset(path)


def assert_same(ours, theirs, **options):
    found, expected = ours.to_table(**options), theirs.to_table(**options)
    assert found.schema.equals(expected.schema, check_metadata=True), options
    assert found.equals(expected), options


SCANS = [
    {},
    {"columns": []},
    {"columns": ["name", "id"]},
    {"columns": ["s.y", "id", "s.x"]},
    {"columns": {"twice": "id * 2", "x": "s.x", "r": "_rowid"}},
    {"columns": ["_rowaddr", "id", "_rowid", "_rowoffset"]},
    {"columns": ["_row_created_at_version", "_row_last_updated_at_version"]},
    {"with_row_id": True, "with_row_address": True},
    {"limit": 7, "offset": 5},
    {"limit": 0},
    {"offset": 1000},
    {"filter": "id % 3 = 1"},
    {"filter": "s.x > 11 AND name IS NOT NULL", "columns": ["tags", "s"]},
    {"filter": "name = 'row 9' OR id IN (1, 2, 30)", "with_row_id": True},
    {"filter": "id > 5", "limit": 4, "offset": 3},
    {"filter": "_rowid > 4294967299", "columns": ["id"]},
    {"filter": "false", "columns": ["v"]},
    {"filter": "id >= 0", "columns": []},
    {"filter": pc.field("id") < 4},
    {"filter": "array_has(tags, '1')", "columns": {"n": "upper(name)"}},
]


@pytest.fixture(scope="module", params=[*VERSIONS, "stable row ids"])
def table(request, tmp_path_factory):
    """Written by the reference, in fragments, some rows deleted, columns in several files."""
    path = str(tmp_path_factory.mktemp("table") / "t.lance")
    options = {"data_storage_version": request.param}
    if request.param == "stable row ids":
        options = {"enable_stable_row_ids": True}
    dataset = lance.write_dataset(rows(0, 25), path, max_rows_per_file=10, **options)
    dataset.delete("id = 3 OR id = 12")
    dataset.insert(rows(25, 40))
    dataset.add_columns({"more": "id * 10"})
    dataset.add_columns({"y2": "s.y"})
    if request.param != "0.1":
        dataset.insert(rows(40, 44).select(["id", "tags"]))
    dataset.delete("id >= 20 AND id < 25")
    return path


# The reference reads no files of 0.1 without columns, and knows no row ids in their filters.
NOT_WITH_0_1 = [{"columns": []}, {"filter": "_rowid > 4294967299", "columns": ["id"]}]


@pytest.mark.parametrize("options", SCANS, ids=str)
def test_a_scan_matches_the_reference(table, options):
    ours, theirs = both(table)
    if ours.data_storage_version == "0.1" and options in NOT_WITH_0_1:
        with pytest.raises(pa.ArrowInvalid):
            theirs.to_table(**options)
        assert ours.to_table(**options).num_rows == theirs.count_rows(options.get("filter"))
        return
    assert_same(ours, theirs, **options)


def test_nested_columns_in_expressions_of_pyarrow_work_here(table):
    ours, theirs = both(table)
    found = ours.to_table(filter=pc.field("s", "x") < 4)
    assert found == theirs.to_table(filter="s.x < 4")


@pytest.mark.parametrize(
    "columns",
    [["s.q", "s.p"], ["s.p", "a", "s"], ["a", "a"], ["l.item.u"], ["_rowid", "s.q.x", "`s`.p"]],
)
def test_fields_within_a_column_are_taken_within_it(tmp_path, columns):
    rows = [{"a": n, "s": {"p": n, "q": {"x": n, "y": 0}}, "l": [{"u": n, "v": 0}]} for n in (1, 2)]
    theirs = lance.write_dataset(pa.Table.from_pylist([*rows, {"a": 3}]), str(tmp_path / "t"))
    ours = lancelet.dataset(theirs.uri)
    assert ours.take([2, 0], columns=columns).equals(theirs.take([2, 0], columns=columns))
    assert ours._take_rows([1], columns=columns).equals(theirs._take_rows([1], columns=columns))
    assert ours.sample(3, columns).schema == theirs.sample(3, columns).schema


def test_results_carry_the_metadata_of_the_schema(tmp_path):
    inner = pa.field("x", pa.int64(), metadata={"of": "x"})
    fields = [pa.field("a", pa.int64(), metadata={"of": "a"}), pa.field("s", pa.struct([inner]))]
    schema = pa.schema(fields, metadata={"of": "the table"})
    rows = pa.Table.from_pylist([{"a": 1, "s": {"x": 2}}] * 3, schema)
    theirs = lance.write_dataset(rows, str(tmp_path / "t"))
    ours = lancelet.dataset(theirs.uri)
    for read in [
        lambda d: d.to_table(),
        lambda d: d.to_table(columns=["s.x"], filter="a = 1", with_row_id=True),
        lambda d: d.to_table(columns={"twice": "a * 2", "a": "a"}, filter="a > 1"),
        lambda d: d.take([0, 2]),
        lambda d: d.get_fragments()[0].take([0]),
        lambda d: next(iter(d.to_batches())),
        lambda d: d.scanner(columns=["a"]).to_reader(),
    ]:
        assert read(ours).schema.equals(read(theirs).schema, check_metadata=True)


def test_rows_are_taken_by_place_and_by_id(table):
    ours, theirs = both(table)
    places = [7, 0, 30, 7, 12]
    assert ours.take(places).equals(theirs.take(places))
    assert ours.take(places, columns={"a": "id + 1"}) == theirs.take(
        places, columns={"a": "id + 1"}
    )
    ids = theirs.to_table(columns=["_rowid"]).column(0).to_pylist()[::-3]
    assert ours._take_rows(ids) == theirs._take_rows(ids)


def test_counts_and_descriptions_agree(table):
    ours, theirs = both(table)
    assert ours.count_rows() == theirs.count_rows()
    assert ours.count_rows("id > 10") == theirs.count_rows("id > 10")
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert [v["metadata"] for v in ours.versions()] == [v["metadata"] for v in theirs.versions()]
    # The reference computes times with floats, which rounds them.
    for mine, other in zip(ours.versions(), theirs.versions(), strict=True):
        assert abs(mine["timestamp"] - other["timestamp"]) <= timedelta(microseconds=2)
    assert ours.stats.dataset_stats() == theirs.stats.dataset_stats()
    assert ours.max_field_id == theirs.max_field_id
    found = [json.loads(json.dumps(f.metadata.to_json())) for f in ours.get_fragments()]
    expected = [json.loads(json.dumps(f.metadata.to_json())) for f in theirs.get_fragments()]
    assert found == expected


def test_fragments_read_identically(table):
    for mine, other in zip(*(d.get_fragments() for d in both(table)), strict=True):
        assert mine.to_table() == other.to_table()
        assert mine.count_rows() == other.count_rows()
        assert mine.take([0, 1]) == other.take([0, 1])


def test_every_older_version_reads_as_it_did(table):
    for version in range(1, lance.dataset(table).version + 1):
        assert_same(lancelet.dataset(table, version), lance.dataset(table, version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stable", [False, True])
def test_the_reference_reads_what_we_wrote_and_continues(tmp_path, version, stable):
    path = str(tmp_path / "t.lance")
    dataset = lancelet.write_dataset(
        rows(0, 25),
        path,
        max_rows_per_file=10,
        data_storage_version=version,
        enable_stable_row_ids=stable,
    )
    dataset.delete("id % 5 = 2")
    dataset.insert(rows(25, 30).select(["id", "name"]))
    dataset.delete("id >= 10 AND id < 20")
    theirs = lance.dataset(path)
    theirs.validate()
    assert theirs.has_stable_row_ids == stable
    assert_same(dataset, theirs, with_row_id=True, with_row_address=True)
    theirs.insert(rows(30, 33))
    theirs.delete("id = 31")
    dataset.checkout_latest()
    assert_same(dataset, theirs, columns=["_row_created_at_version", "id", "_rowid"])
    assert lancelet.write_dataset(rows(50, 51), path, mode="overwrite").count_rows() == 1
    assert lance.dataset(path).to_table() == rows(50, 51)


@pytest.mark.parametrize(
    "path", sorted(p.parent for p in HISTORICAL.rglob("_versions")), ids=lambda p: p.name
)
def test_old_datasets_read_equal_and_can_be_appended_to(path, tmp_path):
    copied = tmp_path / "old.lance"
    shutil.copytree(path, copied)
    theirs = lance.dataset(str(copied))
    for found in theirs.versions():
        version = found["version"]
        ours = lancelet.dataset(str(copied), version)
        assert_same(ours, lance.dataset(str(copied), version))
        assert ours.count_rows() == lance.dataset(str(copied), version).count_rows()
    ours = lancelet.dataset(str(copied))
    more = ours.to_table().slice(0, 2)
    ours.insert(more)
    assert_same(ours, lance.dataset(str(copied)))
    assert ours.count_rows() == theirs.count_rows() + more.num_rows


def test_a_wrong_data_version_is_corrected_by_the_next_commit(tmp_path):
    copied = tmp_path / "old.lance"
    shutil.copytree(HISTORICAL / "v0.16.0" / "wrong_data_version_can_fix.lance", copied)
    ours = lancelet.dataset(str(copied))
    assert ours.data_storage_version == "0.1"
    ours.insert(ours.to_table())
    assert lance.dataset(str(copied)).data_storage_version == "2.0"


@pytest.mark.parametrize("rows", [[None, None], [[], []], [None, []]])
def test_dictionaries_without_values_have_a_place_in_old_tables(tmp_path, rows):
    words = pa.dictionary(pa.int8(), pa.string())
    table = pa.table({"d": pa.array(rows, pa.list_(words))})
    path = str(tmp_path / "t")
    lancelet.write_dataset(table, path, data_storage_version="0.1")
    assert lance.dataset(path).to_table()["d"].to_pylist() == [[], []]
    more = pa.table({"d": pa.array([["red"], ["blue", "red"]], pa.list_(words))})
    lancelet.write_dataset(more, path, mode="append")
    for module in (lancelet, lance):
        found = module.dataset(path).to_table()["d"].to_pylist()
        assert found == [[], [], ["red"], ["blue", "red"]]


def test_dictionaries_of_old_files_grow(tmp_path):
    path = str(tmp_path / "t.lance")
    first = pa.table({"d": pa.array(["red", "green", "red"]).dictionary_encode()})
    second = pa.table({"d": pa.array(["blue", "red"]).dictionary_encode()})
    dataset = lancelet.write_dataset(first, path, data_storage_version="0.1")
    dataset.insert(second)
    dataset.delete("d = 'green'")
    expected = ["red", "red", "blue", "red"]
    assert dataset.to_table().column("d").to_pylist() == expected
    assert lance.dataset(path).to_table().column("d").to_pylist() == expected


def test_json_and_decimals_pass_both_ways(tmp_path):
    path = str(tmp_path / "t.lance")
    data = pa.table(
        {
            "j": pa.array(['{"a": 1}', None], pa.json_()),
            "d": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2.25")]),
        }
    )
    ours = lancelet.write_dataset(data, path)
    assert_same(ours, lance.dataset(path))
    assert ours.to_table(filter="d > 1.5").num_rows == 0
    assert ours.to_table(filter="d >= 1.5").num_rows == 1


def test_blob_columns_are_read_as_places(tmp_path):
    schema = pa.schema(
        [
            pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
            pa.field("z", pa.int64()),
        ]
    )
    data = pa.table([pa.array([b"abc", None, b""], pa.large_binary()), [1, 2, 3]], schema=schema)
    for version in ("2.0", "2.1", "2.2"):
        path = str(tmp_path / version)
        ours = lancelet.write_dataset(data, path, data_storage_version=version)
        theirs = lance.dataset(path)
        assert_same(ours, theirs, columns=["z", "b"])
        blobs = theirs.take_blobs("b", indices=[0])
        assert blobs[0].readall() == b"abc"


def test_duckdb_reads_through_the_dataset_with_filters_pushed_down(tmp_path):
    data = pa.table({"id": range(5000), "g": [i % 7 for i in range(5000)]})
    dataset = lancelet.write_dataset(data, tmp_path / "t.lance", max_rows_per_file=2000)
    dataset.delete("id = 10")
    query = "SELECT g, count(*), min(id) FROM dataset WHERE id > 2 AND g < 2 GROUP BY g ORDER BY g"
    expected = [
        (g, sum(i % 7 == g and i > 2 and i != 10 for i in range(5000)), 7 + g) for g in (0, 1)
    ]
    assert duckdb.sql(query).fetchall() == expected


def test_a_dataset_travels_to_other_processes(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": range(10)}), str(tmp_path / "t.lance"))
    dataset.insert(pa.table({"id": range(10, 12)}))
    again = pickle.loads(pickle.dumps(dataset.checkout_version(1)))
    assert (again.version, again.count_rows(), again.uri) == (1, 10, dataset.uri)
    fragment = pickle.loads(pickle.dumps(dataset.get_fragments()[1]))
    assert fragment.to_table() == dataset.get_fragments()[1].to_table()

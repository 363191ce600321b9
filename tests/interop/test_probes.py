"""Operations that fail or give wrong results in pylance work in lancelet.

Each test is one probe that was run against the reference. Those that need more than a page have
a place of their own:

    flipped bits                      tests/property/test_bit_flips.py
    updates beside a compactor        tests/faults/test_maintenance.py
    eight upserts of one key          tests/faults/test_mutation.py
    deltas without stable row ids     tests/unit/upkeep/changes/test_changes.py
    filters that it refuses           tests/interop/test_filters_interop.py
    three-valued logic by indices     tests/interop/test_index_differential.py
    dropping foreign folders          tests/unit/dataset/test_dataset.py
"""

import datetime as dt
import decimal
import shutil

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
from lancelet.commit import CommitConflictError
from lancelet.errors import LanceletError, UnsupportedError

pytestmark = pytest.mark.interop

TYPED = pa.table(
    {
        "id": [0, 1, 2],
        "money": pa.array([decimal.Decimal(text) for text in ("1.00", "1.50", "2.25")]),
        "time": pa.array([dt.time(1), dt.time(2, 30), dt.time(3)]),
        "moment": pa.array([dt.datetime(2020, 1, day) for day in (1, 2, 3)]),  # noqa: DTZ001
        "s": [{"b": 0, "c": "x"}, {"b": 1, "c": "y"}, {"b": 2, "c": "z"}],
    }
)


@pytest.fixture
def dataset(tmp_path):
    return lancelet.write_dataset(TYPED, str(tmp_path / "t.lance"))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("money > 1.5", [2]),
        ("money = 1.50", [1]),
        ("money IN (1, 2.25)", [0, 2]),
        ("time >= '02:30:00'", [1, 2]),
        ("time < time '02:00:00'", [0]),
        ("moment + interval '1 day' > timestamp '2020-01-03'", [2]),
        ("moment - interval '36 hours' >= '2019-12-31 12:00:00'", [1, 2]),
    ],
)
def test_decimals_times_and_intervals_are_compared(dataset, text, ids):
    assert dataset.to_table(columns=["id"], filter=text)["id"].to_pylist() == ids
    assert dataset.count_rows(filter=text) == len(ids)
    with pytest.raises((ValueError, OSError)):
        lance.dataset(dataset.uri).count_rows(filter=text)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_expressions_of_arrow_compare_timestamps(tmp_path, unit, zone):
    kind = pa.timestamp(unit, zone)
    moments = TYPED["moment"].cast(pa.timestamp(unit)).cast(kind)
    dataset = lancelet.write_dataset(pa.table({"moment": moments}), str(tmp_path))
    for expression, rows in (
        (pc.field("moment") >= moments[1], 2),
        (pc.field("moment") == moments[1], 1),
    ):
        found = dataset.to_table(filter=expression)
        assert found.num_rows == rows
        if unit != "ns":  # Arrow cannot hand those to the reference.
            assert found.equals(lance.dataset(dataset.uri).to_table(filter=expression))


def test_today_is_a_date(dataset):
    assert dataset.count_rows(filter="moment < current_date()") == 3


def test_fields_of_structs_are_updated_cast_and_computed(dataset):
    dataset.update({"s.b": "s.b + 10"}, where="id = 1")
    dataset.alter_columns({"path": "s.b", "data_type": pa.int16()})
    dataset.add_columns({"s.twice": "s.b * 2"})
    dataset.drop_columns(["s.c"])
    dataset.alter_columns({"path": "s.twice", "name": "d"})
    expected = [{"b": 0, "d": 0}, {"b": 2, "d": 4}, {"b": 11, "d": 22}]
    assert dataset.to_table(columns=["s"])["s"].to_pylist() == expected
    assert dataset.schema.field("s").type.field("b").type == pa.int16()
    assert lance.dataset(dataset.uri).to_table().equals(dataset.to_table())


UNION = pa.UnionArray.from_dense(
    pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
)
REFUSED_TYPES = {
    "list_view": pa.array([[1]], pa.list_view(pa.int64())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([1], [5]),
    "union": UNION,
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])], pa.month_day_nano_interval()),
}
TYPES_OF_2_2 = {
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "structs": pa.array([[{"x": 1}]], pa.list_(pa.struct([("x", pa.int64())]), 1)),
}


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", [*REFUSED_TYPES, *TYPES_OF_2_2])
def test_types_without_a_place_are_rejected_before_a_byte_is_written(tmp_path, name, version):
    """The reference writes fixed-size lists of structs as 2.0, and panics when it reads them."""
    column = (REFUSED_TYPES | TYPES_OF_2_2)[name]
    path, table = tmp_path / "t.lance", pa.table({"c": column})
    if name in TYPES_OF_2_2 and version == "2.2":
        lancelet.write_dataset(table, str(path), data_storage_version=version)
        assert lance.dataset(str(path)).to_table().equals(table)
        return
    with pytest.raises(UnsupportedError) as caught:
        lancelet.write_dataset(table, str(path), data_storage_version=version)
    assert "c" in caught.value.facts.values()
    assert name in REFUSED_TYPES or "2.2" in str(caught.value)
    assert not list(path.rglob("*.*"))


def test_rows_after_the_end_are_named(dataset):
    """The reference speaks of fragment 4294967295."""
    with pytest.raises(IndexError, match="out of range") as caught:
        dataset.take([5])
    assert isinstance(caught.value, OSError)
    assert caught.value.facts == {"row": 5, "num_rows": 3}


def test_a_dataset_that_is_not_there_is_a_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        lancelet.dataset(str(tmp_path / "nowhere"))
    assert isinstance(caught.value, ValueError)
    assert str(tmp_path / "nowhere") in str(caught.value)


ROWS = pa.table({"nobody": [1]})
FAULTS = {
    "path": lambda api, uri: api.dataset(uri + "-nowhere"),
    "version": lambda api, uri: api.dataset(uri, version=99),
    "tag": lambda api, uri: api.dataset(uri).tags.get_version("nobody"),
    "take": lambda api, uri: api.dataset(uri).take([99]),
    "negative row": lambda api, uri: api.dataset(uri).take([-1]),
    "column": lambda api, uri: api.dataset(uri).to_table(columns=["nobody"]),
    "filter column": lambda api, uri: api.dataset(uri).to_table(filter="nobody = 1"),
    "filter": lambda api, uri: api.dataset(uri).to_table(filter="id = "),
    "limit": lambda api, uri: api.dataset(uri).to_table(limit=-1),
    "offset": lambda api, uri: api.dataset(uri).to_table(offset=-1),
    "sample": lambda api, uri: api.dataset(uri).sample(99),
    "count": lambda api, uri: api.dataset(uri).count_rows("nobody = 1"),
    "exists": lambda api, uri: api.write_dataset(TYPED, uri),
    "append": lambda api, uri: api.write_dataset(ROWS, uri, mode="append"),
    "mode": lambda api, uri: api.write_dataset(TYPED, uri, mode="nobody"),
    "file version": lambda api, uri: api.write_dataset(
        TYPED, uri + "-new", data_storage_version="9.9"
    ),
    "delete": lambda api, uri: api.dataset(uri).delete("nobody = 1"),
    "delete by text": lambda api, uri: api.dataset(uri).delete("id ="),
    "update": lambda api, uri: api.dataset(uri).update({"nobody": "1"}),
    "update value": lambda api, uri: api.dataset(uri).update({"id": "nobody"}),
    "update where": lambda api, uri: api.dataset(uri).update({"id": "1"}, where="id"),
    "add column": lambda api, uri: api.dataset(uri).add_columns({"new": "nobody + 1"}),
    "drop column": lambda api, uri: api.dataset(uri).drop_columns(["nobody"]),
    "drop index": lambda api, uri: api.dataset(uri).drop_index("nobody"),
    "index column": lambda api, uri: api.dataset(uri).create_scalar_index("nobody", "BTREE"),
    "index kind": lambda api, uri: api.dataset(uri).create_scalar_index("id", "NOBODY"),
    "drop": lambda api, uri: api.LanceDataset.drop(uri + "-nowhere"),
    "blobs": lambda api, uri: api.dataset(uri).take_blobs("id", indices=[0]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_are_also_of_the_class_that_the_reference_raises(dataset, fault):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever it raises
        FAULTS[fault](lance, dataset.uri)
    with pytest.raises(theirs.type) as ours:
        FAULTS[fault](lancelet, dataset.uri)
    assert isinstance(ours.value, LanceletError) or fault == "sample"
    assert "/home/runner" not in str(ours.value)


def test_lost_races_are_conflicts_that_name_the_winner(tmp_path):
    path = str(tmp_path)
    lancelet.write_dataset(pa.table({"id": [1], "x": [1]}), path)
    first, second = lancelet.dataset(path), lancelet.dataset(path)
    first.update({"x": "2"})
    with pytest.raises(CommitConflictError) as caught:
        second.update({"x": "3"}, conflict_retries=0)
    assert {"ours", "theirs", "retryable"} <= set(caught.value.facts)


def test_nulls_in_indexed_lists_are_found(tmp_path):
    lists = pa.array([["a", None], [None], [], None, ["b"]], pa.list_(pa.string()))
    table = pa.table({"id": range(5), "tags": lists})
    for text in (
        "array_has(tags, 'a')",
        "array_has_any(tags, ['a', 'b'])",
        "array_has_any(tags, [NULL])",
        "array_has_any(tags, ['b', NULL])",
        "NOT array_has_any(tags, [NULL])",
        "tags IS NULL",
    ):
        dataset = lancelet.write_dataset(table, str(tmp_path), mode="overwrite")
        plain = dataset.to_table(filter=text)
        assert plain.equals(lance.dataset(str(tmp_path)).to_table(filter=text))
        dataset.create_scalar_index("tags", "LABEL_LIST")
        assert dataset.to_table(filter=text).equals(plain)


def test_tags_keep_their_versions_from_cleanup(tmp_path):
    path = str(tmp_path)
    for number in range(4):
        mode = "overwrite" if number else "create"
        dataset = lancelet.write_dataset(pa.table({"id": [number]}), path, mode=mode)
    dataset.tags.create("kept", 2)
    removed = dataset.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    assert removed.old_versions == 2
    assert [entry["version"] for entry in dataset.versions()] == [2, 4]
    for api in (lancelet, lance):
        assert api.dataset(path, version="kept").to_table()["id"].to_pylist() == [1]


def test_unknown_buffers_of_files_are_no_obstacle(tmp_path):
    """A buffer that nobody knows is read past, and a file of ours without checksums is too."""
    path = str(tmp_path / "t.lance")
    dataset = lancelet.write_dataset(TYPED, path)
    with lance.file.LanceFileWriter(f"{path}/data/other.lance", TYPED.schema) as writer:
        writer.write_batch(TYPED)
        writer.add_global_buffer(b"nobody knows what this is")
    entry = dataset.get_fragments()[0].metadata.files[0]
    copied = lancelet.fragment.DataFile(
        "other.lance",
        entry.fields,
        entry.column_indices,
        entry.file_major_version,
        entry.file_minor_version,
    )
    fragment = lancelet.FragmentMetadata(id=1, files=[copied], physical_rows=3)
    operation = lancelet.LanceOperation.Append([fragment])
    dataset = lancelet.LanceDataset.commit(dataset, operation, read_version=1)
    assert dataset.to_table().equals(pa.concat_tables([TYPED, TYPED]))
    dataset.validate()
    assert dataset.check() == []
    dataset.optimize.compact_files()
    assert len(dataset.get_fragments()) == 1
    assert lance.dataset(path).to_table().equals(dataset.to_table())
    shutil.rmtree(path)


def test_a_dataset_is_read_after_a_fork(tmp_path, run_program):
    lancelet.write_dataset(TYPED, str(tmp_path))
    program = """
import os, sys, lancelet
dataset = lancelet.dataset(sys.argv[1])
rows = dataset.to_table()
child = os.fork()
if not child:
    os._exit(0 if dataset.to_table(filter="id >= 0").equals(rows) else 1)
print(os.waitpid(child, 0)[1])
"""
    assert run_program(program, str(tmp_path)) == "0\n"

"""Columns added, altered and dropped by us read the same in both, and both go on from there."""

import lance
import pyarrow as pa
import pytest

import lancelet

VERSIONS = ["0.1", "2.0", "2.1", "2.2"]
FLAT = pa.table({"a": [1, 2, 3], "s": [{"x": n, "y": f"row {n}"} for n in (1, 2, 3)]})
NESTED = FLAT.append_column("l", pa.array([[{"u": 1}], [], [{"u": 2}, {"u": 3}]]))
KINDS = [(version, stable) for version in VERSIONS for stable in (False, True)]
KINDS.remove(("0.1", True))


def two_fragments(path, version, *, stable=False):
    """Return a table of two fragments, each with a deleted row in the middle."""
    rows = FLAT if version == "0.1" else NESTED
    settings = {"data_storage_version": version, "enable_stable_row_ids": stable}
    lancelet.write_dataset(rows, path, **settings)
    dataset = lancelet.write_dataset(rows, path, mode="append")
    dataset.delete("a = 2")
    return dataset


def check(dataset):
    """Compare what both read, and return it."""
    found = dataset.to_table()
    reference = lance.dataset(dataset.uri)
    reference.validate()
    dataset.validate()
    assert found.equals(reference.to_table())
    assert found.schema.equals(reference.schema, check_metadata=True)
    return found.to_pydict()


@pytest.mark.parametrize(("version", "stable"), KINDS)
def test_added_columns_read_the_same_in_both(tmp_path, version, stable):
    dataset = two_fragments(tmp_path, version, stable=stable)
    dataset.add_columns({"b": "a + 1", "c": "s.x * 2"})
    dataset.add_columns(lambda batch: pa.record_batch({"f": [1.5] * batch.num_rows}))
    dataset.add_columns(pa.table({"r": range(4)}))
    found = check(dataset)
    assert found["b"] == [2, 4, 2, 4]
    assert found["c"] == [2, 6, 2, 6]
    assert found["f"] == [1.5] * 4
    assert found["r"] == [0, 1, 2, 3]
    if version == "0.1":
        with pytest.raises(OSError, match="Cannot add all-null columns"):
            dataset.add_columns(pa.field("n", pa.int32()))
        return
    dataset.add_columns(pa.field("n", pa.int32()))
    assert check(dataset)["n"] == [None] * 4
    assert all(len(fragment.data_files()) == 4 for fragment in dataset.get_fragments())


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_fields_are_added_to_structs_also_within_lists(tmp_path, version):
    dataset = two_fragments(tmp_path, version)
    dataset.add_columns({"s.w": "a * 10", "l.item.v": "u * 10"})
    dataset.add_columns(pa.schema([("l", pa.list_(pa.struct([("q", pa.int8())])))]))
    dataset.add_columns(pa.table({"s": [{"g": number} for number in range(4)]}))
    found = check(dataset)
    assert found["s"][3] == {"x": 3, "y": "row 3", "w": 30, "g": 3}
    assert found["l"][1] == [{"u": 2, "v": 20, "q": None}, {"u": 3, "v": 30, "q": None}]


@pytest.mark.parametrize(("version", "stable"), KINDS)
def test_altered_columns_read_the_same_in_both(tmp_path, version, stable):
    dataset = two_fragments(tmp_path, version, stable=stable)
    before = lance.dataset(tmp_path, version=1).to_table()
    dataset.alter_columns({"path": "a", "data_type": pa.int32(), "name": "A"})
    dataset.alter_columns({"path": "s.x", "data_type": pa.int16(), "name": "xx"})
    dataset.alter_columns({"path": "s.xx", "name": "z", "nullable": False})
    assert check(dataset)["A"] == [1, 3, 1, 3]
    assert dataset.schema.field("s").type.field("z") == pa.field("z", pa.int16(), nullable=False)
    if version != "0.1":
        dataset.alter_columns(
            {"path": "l.item.u", "data_type": pa.int16()},
            {"path": "s.y", "data_type": pa.large_string()},
        )
        assert check(dataset)["l"][3] == [{"u": 2}, {"u": 3}]
    assert lancelet.dataset(tmp_path, version=1).to_table().equals(before)
    assert lance.dataset(tmp_path, version=1).to_table().equals(before)


@pytest.mark.parametrize(("version", "stable"), KINDS)
def test_dropped_columns_are_gone_in_both_and_their_ids_stay_taken(tmp_path, version, stable):
    dataset = two_fragments(tmp_path, version, stable=stable)
    highest = dataset.max_field_id
    dataset.add_columns({"b": "a"})
    dataset.drop_columns(["s.x", "b"])
    assert set(check(dataset)["s"][0]) == {"y"}
    assert all(len(fragment.data_files()) == 1 for fragment in dataset.get_fragments())
    dataset.drop_columns(["s.y"])
    assert "s" not in check(dataset)
    dataset.add_columns({"c": "a"})
    assert dataset.lance_schema.field("c").id() == highest + 1
    check(dataset)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_reference_goes_on_from_our_changes_and_we_from_its(tmp_path, version):
    dataset = two_fragments(tmp_path, version)
    dataset.add_columns({"b": "a + 1"})
    reference = lance.dataset(tmp_path)
    reference.add_columns({"c": "b + 1"})
    reference.drop_columns(["b"])
    reference.alter_columns({"path": "a", "data_type": pa.int16()})
    dataset.checkout_latest()
    dataset.alter_columns({"path": "c", "data_type": pa.int32(), "name": "d"})
    lance.write_dataset(dataset.head(1), tmp_path, mode="append")
    dataset.checkout_latest()
    assert check(dataset)["d"] == [3, 5, 3, 5, 3]
    assert lance.dataset(tmp_path).schema.equals(dataset.schema)

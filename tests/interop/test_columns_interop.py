"""Columns added, altered and dropped by lancelet read the same in both libraries."""

import json
import shutil
from pathlib import Path

import lance
import lance.fragment
import pyarrow as pa
import pytest

import lancelet
import lancelet.fragment
from lancelet.errors import CommitConflictError

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
def test_the_reference_continues_from_our_changes_and_we_from_its(tmp_path, version):
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


LEFT = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
JOINS = {
    "all": (pa.table({"a": [3, 1, 2], "c": [30, 10, 20]}), "a", None),
    "some": (pa.table({"k": [3, 1, 9], "c": ["p", "q", "r"]}), "a", "k"),
    "twice": (pa.table({"a": [3, 3, 1], "c": ["p", "q", "r"]}), "a", None),
    "text": (pa.table({"b": ["z"], "c": ["p"]}), "b", None),
    "struct": (pa.table({"a": [3, 1, 2], "c": [{"x": 1}, {"x": 2}, {"x": 3}]}), "a", None),
    "row ids": (pa.table({"_rowid": pa.array([2], pa.uint64()), "c": ["p"]}), "_rowid", None),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("version", VERSIONS)
def test_joined_columns_are_those_that_the_reference_joins(tmp_path, version, join):
    ours = lancelet.write_dataset(LEFT, tmp_path / "ours", data_storage_version=version)
    theirs = lance.write_dataset(LEFT, tmp_path / "theirs", data_storage_version=version)
    ours.merge(*JOINS[join])
    theirs.merge(*JOINS[join])
    assert check(ours) == theirs.to_table().to_pydict()
    assert ours.schema.equals(theirs.schema)
    files = ours.get_fragment(0).data_files()
    assert [file.fields for file in files] == [
        file.fields for file in theirs.get_fragment(0).data_files()
    ]


def test_a_join_with_no_rows_adds_columns_without_values(tmp_path):
    dataset = lancelet.write_dataset(LEFT, tmp_path)
    nothing = pa.table({"a": pa.array([], pa.int64()), "c": pa.array([], pa.string())})
    dataset.merge(nothing, "a")
    assert check(dataset)["c"] == [None] * 3


@pytest.mark.parametrize(("version", "stable"), KINDS)
def test_a_fragment_whose_columns_we_update_is_committed_by_either(tmp_path, version, stable):
    dataset = two_fragments(tmp_path, version, stable=stable)
    new = pa.table({"a": [3, 2, 9], "s": [{"x": 0, "y": "new"}] * 3})
    fragment, fields, offsets = dataset.get_fragment(1).update_columns(
        new, left_on="a", with_offsets=True
    )
    theirs = lance.dataset(tmp_path).get_fragment(1).update_columns(new, left_on="a")
    assert fields == theirs[1]
    assert [file.fields for file in fragment.files] == [file.fields for file in theirs[0].files]
    for module in (lancelet, lance):
        shown = lance.fragment.FragmentMetadata.from_json(json.dumps(fragment.to_json()))
        operation = module.LanceOperation.Update(
            updated_fragments=[fragment if module is lancelet else shown],
            fields_modified=fields,
            update_mode="rewrite_columns",
            updated_fragment_offsets={1: offsets},
        )
        committed = module.LanceDataset.commit(
            str(tmp_path), operation, read_version=dataset.version
        )
        dataset.checkout_latest()
        assert [row["y"] for row in check(dataset)["s"]] == ["row 1", "row 3", "row 1", "new"]
        if stable:
            changed = dataset.to_table(columns=["_row_last_updated_at_version"])
            version_column = changed.column(0).to_pylist()
            assert version_column[3] == committed.version
            assert version_column[:3] == [1, 1, 2]
        dataset = lancelet.dataset(tmp_path, version=committed.version - 1)
        dataset.restore()


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_of_separate_fragments_are_committed_together(tmp_path, version):
    dataset = two_fragments(tmp_path, version)
    parts = [each.merge_columns({"b": "a * 5"}) for each in dataset.get_fragments()]
    schema = parts[0][1]
    assert all(other == schema for _, other in parts)
    operation = lancelet.LanceOperation.Merge([fragment for fragment, _ in parts], schema)
    committed = lancelet.LanceDataset.commit(str(tmp_path), operation, read_version=dataset.version)
    assert check(committed)["b"] == [5, 15, 5, 15]


@pytest.mark.parametrize(("version", "stable"), KINDS)
def test_replaced_columns_take_the_place_of_the_old_ones(tmp_path, version, stable):
    dataset = two_fragments(tmp_path, version, stable=stable)
    if version == "0.1":
        with pytest.raises(NotImplementedError, match="must retain its first field"):
            dataset.replace_columns({1: pa.table({"a": [70, 80]})})
        dataset.replace_columns({1: pa.table({"s": [{"x": 0, "y": "new"}] * 2})})
        assert [row["y"] for row in check(dataset)["s"]] == ["row 1", "row 3", "new", "new"]
        return
    dataset.replace_columns({1: pa.table({"a": [70, 80]})})
    assert check(dataset)["a"] == [1, 3, 70, 80]
    dataset.replace_columns({1: pa.table({"a": [7, 8]}), 0: pa.table({"a": [5, 6]})})
    assert check(dataset)["a"] == [5, 6, 7, 8]
    assert check(dataset)["s"][0] == {"x": 1, "y": "row 1"}


def test_a_replacement_conflicts_with_moved_rows_and_not_with_other_columns(tmp_path):
    dataset = two_fragments(tmp_path, "2.2")
    stale = lancelet.dataset(tmp_path)
    dataset.delete("a = 3")
    dataset.replace_columns({1: pa.table({"s": [{"x": 9, "y": "new"}]})})
    stale.replace_columns({0: pa.table({"a": [10, 30]})})
    assert check(stale)["a"] == [10, 1]
    stale = lancelet.dataset(tmp_path)
    dataset.checkout_latest()
    dataset.update({"a": "11"}, "a = 10")
    with pytest.raises(lancelet.errors.CommitConflictError):
        stale.replace_columns({0: pa.table({"s": [{"x": 0, "y": ""}]})})


INDEXED = pa.table({"a": range(100), "b": [f"row {n}" for n in range(100)]})


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_migrated_row_ids_are_the_addresses_so_that_indices_stay_true(tmp_path, version):
    reference = lance.write_dataset(
        INDEXED, tmp_path, data_storage_version=version, max_rows_per_file=30
    )
    reference.delete("a % 7 = 3")
    reference.create_scalar_index("a", "BTREE")
    reference.create_scalar_index("b", "BITMAP")
    dataset = lancelet.dataset(tmp_path)
    before = dataset.to_table(with_row_id=True)
    dataset.migrate_to_stable_row_ids()
    migrated = dataset.version
    dataset.migrate_to_stable_row_ids()
    assert dataset.version == migrated
    assert dataset.has_stable_row_ids
    reference = lance.dataset(tmp_path)
    reference.validate()
    assert reference.has_stable_row_ids
    for one in (dataset, reference):
        assert one.to_table(with_row_id=True).equals(before)
    assert not lance.dataset(tmp_path, version=migrated - 1).has_stable_row_ids
    known = dict(zip(before["a"].to_pylist(), before["_rowid"].to_pylist(), strict=True))
    reference.update({"b": "'new'"}, where="a = 42")
    lancelet.write_dataset(INDEXED.slice(0, 5), tmp_path, mode="append")
    lance.dataset(tmp_path).optimize.compact_files()
    dataset, reference = lancelet.dataset(tmp_path), lance.dataset(tmp_path)
    for one in (dataset, reference):
        for number in (0, 29, 42, 99):
            found = one.to_table(filter=f"a = {number}", columns=["a"], with_row_id=True)
            assert known[number] in found["_rowid"].to_pylist()
            assert found.num_rows == 1 + (number < 5)
        assert one.to_table(filter="b = 'new'").num_rows == 1
        assert one.to_table(filter="b = 'row 42'").num_rows == 0
    ids = dataset.to_table(with_row_id=True)["_rowid"].to_pylist()
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("api", [lancelet, lance])
def test_a_version_from_before_a_migration_is_not_restored(tmp_path, api):
    """Addresses would be row ids again, and may be those of other rows by then."""
    dataset = two_fragments(tmp_path, "2.2")
    dataset.migrate_to_stable_row_ids()
    old = api.dataset(tmp_path, version=1)
    with pytest.raises(OSError, match="stable"):
        old.restore()
    assert lance.dataset(tmp_path).version == dataset.version


def test_writers_from_before_a_migration_conflict_with_it(tmp_path):
    dataset = two_fragments(tmp_path, "2.2")
    stale = lancelet.fragment.write_fragments(NESTED, str(tmp_path), mode="append")
    dataset.migrate_to_stable_row_ids()
    with pytest.raises(OSError, match="another transaction"):
        lancelet.LanceDataset.commit(
            str(tmp_path), lancelet.LanceOperation.Append(stale), read_version=dataset.version - 1
        )
    with pytest.raises(OSError, match="conflict"):
        lance.LanceDataset.commit(
            str(tmp_path),
            lance.LanceOperation.Append(lance.fragment.write_fragments(NESTED, str(tmp_path))),
            read_version=dataset.version - 1,
        )


HISTORICAL = sorted(
    path.parent for path in (Path(__file__).parents[1] / "golden" / "historical").rglob("_versions")
)


@pytest.mark.parametrize("source", HISTORICAL, ids=lambda path: "-".join(path.parts[-2:]))
def test_tables_of_old_releases_change_their_columns(tmp_path, source):
    folder = tmp_path / "t"
    shutil.copytree(source, folder)
    dataset = lancelet.dataset(folder)
    before = dataset.to_table()
    name = dataset.schema.names[0]
    number = dataset.version
    numbers = pa.array([str(n) for n in range(before.num_rows)], pa.string())
    dataset.add_columns(pa.table({"added": numbers}))
    dataset.add_columns({"again": "upper(added)"})
    dataset.alter_columns({"path": "added", "name": "text", "data_type": pa.large_string()})
    dataset.alter_columns({"path": name, "name": "renamed"})
    reference = lance.dataset(folder).to_table()
    found = dataset.to_table()
    assert found.equals(reference)
    assert found["text"].to_pylist() == numbers.to_pylist()
    assert found.column("renamed").combine_chunks().equals(before.column(name).combine_chunks())
    dataset.drop_columns(["renamed"] if len(before.schema) > 1 else ["text"])
    assert dataset.to_table().equals(lance.dataset(folder).to_table())
    assert lancelet.dataset(folder, version=number).to_table().equals(before)


def test_a_migration_waits_for_indices_that_were_not_remapped(tmp_path):
    reference = lance.write_dataset(INDEXED, tmp_path, max_rows_per_file=30)
    reference.create_scalar_index("a", "BTREE")
    reference.optimize.compact_files(defer_index_remap=True)
    dataset = lancelet.dataset(tmp_path)
    with pytest.raises(NotImplementedError, match="before a compaction") as refused:
        dataset.migrate_to_stable_row_ids()
    assert refused.value.facts["indices"] == ["a_idx"]
    lance.dataset(tmp_path).drop_index("a_idx")
    dataset.checkout_latest()
    dataset.migrate_to_stable_row_ids()
    assert lance.dataset(tmp_path).describe_indices() == []
    assert check(dataset)["a"] == list(range(100))


@pytest.mark.parametrize("caster", [lancelet, lance])
def test_rows_that_are_added_while_a_column_is_cast_are_not_lost(tmp_path, caster):
    """The new rows have a field that is no longer there, so their values would read as null."""
    uri = str(tmp_path / "t")
    rows = pa.table({"k": [1], "c": pa.array([5], pa.int32())})
    dataset = lancelet.write_dataset(rows, uri)
    written = lancelet.fragment.write_fragments(rows, dataset)
    stale = lance.dataset(uri)
    caster.dataset(uri).alter_columns({"path": "c", "data_type": pa.int64()})
    append = lancelet.LanceOperation.Append(written)
    with pytest.raises(CommitConflictError, match="changed its type"):
        lancelet.LanceDataset.commit(uri, append, read_version=dataset.version)
    if caster is lancelet:
        with pytest.raises(OSError, match="conflict"):
            lance.write_dataset(rows, stale, mode="append")
    assert lancelet.dataset(uri).to_table().to_pylist() == [{"k": 1, "c": 5}]


PRIMARY = "lance-schema:unenforced-primary-key"
CLUSTERING = "lance-schema:unenforced-clustering-key:position"
KEY_CHANGES = {
    "set": ([], {"a": {PRIMARY: "true"}}, {}),
    "set where nulls may be": ([], {"b": {PRIMARY: "true"}}, {}),
    "set again": (["a"], {"a": {PRIMARY: "true"}}, {}),
    "unset": (["a"], {"a": {PRIMARY: None}}, {}),
    "deny": (["a"], {"a": {PRIMARY: "false"}}, {}),
    "move": (["a"], {"a": {f"{PRIMARY}:position": "2"}}, {}),
    "add another": (["a"], {"c": {PRIMARY: "true"}}, {}),
    "replace all of it": (["a"], {"a": {"x": "y"}}, {"replace": True}),
    "replace what is of others": (["a"], {"c": {"x": "y"}}, {"replace": True}),
    "add metadata": (["a"], {"a": {"x": "y"}}, {}),
    "cluster": ([], {"a": {CLUSTERING: "1"}}, {}),
    "cluster otherwise": ([], {"d": {CLUSTERING: "2"}}, {}),
    "cluster no more": ([], {"d": {CLUSTERING: None}}, {}),
    "replace what clusters": ([], {"d": {"x": "y"}}, {"replace": True}),
}


@pytest.mark.parametrize("name", KEY_CHANGES)
def test_keys_are_set_once_as_in_the_reference(tmp_path, name):
    keys, changes, options = KEY_CHANGES[name]
    fields = [pa.field(each, pa.int64(), each == "b") for each in "abcd"]
    for at, field in enumerate(fields):
        if field.name in keys:
            fields[at] = field.with_metadata({PRIMARY: "true"})
    if name.startswith(("cluster ", "replace what clusters")):
        fields[3] = fields[3].with_metadata({CLUSTERING: "1"})
    rows = pa.table([[1]] * 4, schema=pa.schema(fields))
    outcomes = []
    for module in (lancelet, lance):
        dataset = module.write_dataset(rows, str(tmp_path / module.__name__))
        try:
            dataset.update_field_metadata(changes, **options)
        except OSError as error:
            outcomes.append("once set" in str(error) or "must not be nullable" in str(error))
        except ValueError as error:
            outcomes.append("must not be nullable" in str(error))
        else:
            outcomes.append(None)
        seen = [
            (node.name, node.metadata, node.primary_key, node.clustering_key)
            for node in lancelet.dataset(dataset.uri).snapshot.schema.fields
        ]
        assert [(node.primary_key, node.clustering_key) for node in dataset_fields(dataset)] == [
            each[2:] for each in seen
        ]
        outcomes.append(seen)
    assert outcomes[:2] == outcomes[2:]
    assert outcomes[0] in (None, True)


def dataset_fields(dataset):
    """Return the fields that a handle knows, as they are stored where it is the reference's."""
    is_ours = isinstance(dataset, lancelet.LanceDataset)
    return (dataset if is_ours else lancelet.dataset(dataset.uri)).snapshot.schema.fields

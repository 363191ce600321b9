"""Goal: commits conflict exactly where those of the reference do, and make the same version.

Method: the reference makes every operation, in several shapes, from one version of one table, and
commits each to a copy. For every pair it then commits the one after the other, and its answer
(committed, try again, never) is compared with our verdict on the two stored transactions. And
each operation is committed by us too: both manifests must say the same.

    base, version 3     fragments 0 1 2 3 of four rows (0..4, 4..8, ..), columns a and b, index on b
"""

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index
from lance.fragment import FragmentMetadata, write_fragments

from lancelet.format.fragment import Fragment, Inline
from lancelet.format.paths import parse_manifest_name
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot

pytestmark = pytest.mark.interop

Op = lance.LanceOperation
Make = Callable[[lance.LanceDataset], object]

ROWS = 4


def rows(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    return pa.table({"a": ids, "b": 10 * ids})


def create_base(root: Path, *, stable_row_ids: bool) -> lance.LanceDataset:
    """Write the table that all operations are computed from."""
    lance.write_dataset(
        rows(0, 2 * ROWS), root, max_rows_per_file=ROWS, enable_stable_row_ids=stable_row_ids
    )
    ds = lance.write_dataset(rows(2 * ROWS, 4 * ROWS), root, max_rows_per_file=ROWS, mode="append")
    return lance.LanceDataset.commit(ds, index(ds, "by_b", [1], [0, 1, 2, 3]), read_version=2)


def index(
    ds: lance.LanceDataset, name: str, fields: list[int], fragment_ids: list[int]
) -> Op.CreateIndex:
    details = ("/lance.table.BTreeIndexDetails", b"")
    made = Index(
        str(uuid.uuid4()), name, fields, ds.version, fragment_ids, 0, index_details=details
    )
    return Op.CreateIndex([made], [])


def added(ds: lance.LanceDataset, table: pa.Table) -> list[FragmentMetadata]:
    return write_fragments(table, ds.uri, mode="append")


def deleted(ds: lance.LanceDataset, fragment_id: int, row: int) -> FragmentMetadata:
    left = ds.get_fragment(fragment_id).delete(f"a = {row}")
    assert left is not None
    return left


def moved(ds: lance.LanceDataset, row: int) -> Op.Update:
    """Update one row by writing it anew."""
    return Op.Update(
        updated_fragments=[deleted(ds, row // ROWS, row)],
        new_fragments=added(ds, rows(row, row + 1)),
        fields_for_preserving_frag_bitmap=[1],
        update_mode="rewrite_rows",
    )


def column_rewritten(ds: lance.LanceDataset, fragment_id: int, column: str) -> Op.Update:
    fragment = ds.get_fragment(fragment_id)
    ids = fragment.to_table(columns=[], with_row_id=True)["_rowid"]
    values = pa.table({"_rowid": ids, column: np.arange(len(ids))})
    changed, fields = fragment.update_columns(values)
    return Op.Update(
        updated_fragments=[changed], fields_modified=fields, update_mode="rewrite_columns"
    )


def rewritten(ds: lance.LanceDataset, *fragment_ids: int) -> Op.Rewrite:
    fragments = [ds.get_fragment(n) for n in fragment_ids]
    data = pa.concat_tables(fragment.to_table() for fragment in fragments)
    new = added(ds, data)
    return Op.Rewrite([Op.RewriteGroup([f.metadata for f in fragments], new)], [])


def merged(ds: lance.LanceDataset, name: str, *, preserves: bool = False) -> Op.Merge:
    changed = []
    for fragment in ds.get_fragments():
        made, schema = fragment.merge_columns(
            lambda batch: pa.record_batch({name: batch["a"]}), columns=["a"]
        )
        changed.append(made)
    return Op.Merge(changed, schema, preserves_nullability=preserves)


def projected(ds: lance.LanceDataset, dropped: str, *, preserves: bool = False) -> Op.Project:
    scratch = Path(ds.uri).parent / uuid.uuid4().hex
    shutil.copytree(ds.uri, scratch)
    copy = lance.dataset(scratch)
    copy.drop_columns([dropped])
    return Op.Project(copy.lance_schema, preserves_nullability=preserves)


def replaced_file(ds: lance.LanceDataset, fragment_id: int) -> Op.DataReplacement:
    start = ROWS * fragment_id
    (new,) = added(ds, rows(100 + start, 100 + start + ROWS))
    return Op.DataReplacement([Op.DataReplacementGroup(fragment_id, new.files[0])])


def config(**parts: object) -> Make:
    maps = {
        name: Op.UpdateMap(value) if isinstance(value, dict) else value
        for name, value in parts.items()
    }
    return lambda _: Op.UpdateConfig(**maps)


OPERATIONS: dict[str, Make] = {
    "append": lambda ds: Op.Append(added(ds, rows(16, 18))),
    "delete in 0": lambda ds: Op.Delete([deleted(ds, 0, 1)], [], "a = 1"),
    "delete in 2": lambda ds: Op.Delete([deleted(ds, 2, 9)], [], "a = 9"),
    "delete 0": lambda _: Op.Delete([], [0], "a < 4"),
    "update in 0": lambda ds: moved(ds, 2),
    "update in 3": lambda ds: moved(ds, 13),
    "update all of 0": lambda ds: Op.Update(
        removed_fragment_ids=[0], new_fragments=added(ds, rows(0, 4)), update_mode="rewrite_rows"
    ),
    "rewrite column b of 0": lambda ds: column_rewritten(ds, 0, "b"),
    "rewrite column b of 1": lambda ds: column_rewritten(ds, 1, "b"),
    "rewrite 0 and 1": lambda ds: rewritten(ds, 0, 1),
    "rewrite 2": lambda ds: rewritten(ds, 2),
    "merge": lambda ds: merged(ds, "c"),
    "merge, kept": lambda ds: merged(ds, "d", preserves=True),
    "project": lambda ds: projected(ds, "b"),
    "project, kept": lambda ds: projected(ds, "a", preserves=True),
    "replace in 0": lambda ds: replaced_file(ds, 0),
    "replace in 1": lambda ds: replaced_file(ds, 1),
    "index b": lambda ds: index(ds, "more_b", [1], [0, 1, 2, 3]),
    "index a of 3": lambda ds: index(ds, "by_a", [0], [3]),
    "index a again": lambda ds: index(ds, "by_a", [0], [0]),
    "overwrite": lambda ds: Op.Overwrite(rows(0, 1).schema, added(ds, rows(0, 3))),
    "restore": lambda _: Op.Restore(1),
    "config k": config(config_updates={"k": "1"}),
    "config k gone": config(config_updates={"k": None}),
    "config l": config(config_updates={"l": "1"}),
    "config replaced": config(config_updates=Op.UpdateMap({"m": "1"}, replace=True)),
    "table metadata": config(table_metadata_updates={"t": "1"}),
    "table metadata replaced": config(
        table_metadata_updates=Op.UpdateMap({"u": "1"}, replace=True)
    ),
    "schema metadata": config(schema_metadata_updates={"s": "1"}),
    "metadata of a": config(field_metadata_updates={0: Op.UpdateMap({"f": "1"})}),
    "metadata of b": config(field_metadata_updates={1: Op.UpdateMap({"f": "1"})}),
    "table metadata gone": config(table_metadata_updates={"t": None}),
    "schema metadata gone": config(schema_metadata_updates={"s": None}),
    "config and table metadata": config(
        config_updates={"k": "2"}, table_metadata_updates={"z": "1"}
    ),
    "delete in 0 and 1": lambda ds: Op.Delete([deleted(ds, 0, 0)], [1], "a = 0 or .."),
}


ANSWERS = {
    Outcome.COMPATIBLE: "committed",
    Outcome.REBASE: "try again",  # without the affected rows, as raw commits are
    Outcome.RETRY: "try again",
    Outcome.INCOMPATIBLE: "never",
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, lance.LanceDataset]:
    root = tmp_path_factory.mktemp("bases")
    return {
        stable: create_base(root / f"stable-{stable}", stable_row_ids=stable)
        for stable in (False, True)
    }


def located(path: Path) -> TableLocation:
    return TableLocation.open(str(path), {"local_sync": "false"})


def copied(ds: lance.LanceDataset, path: Path) -> Path:
    shutil.copytree(ds.uri, path, copy_function=os.link)
    return path


def answer_of_reference(path: Path, operation: object, read_version: int) -> str:
    try:
        lance.LanceDataset.commit(path, operation, read_version=read_version)
    except OSError as error:
        text = str(error).lower()
        if "retry" in text:
            return "try again"
        return "never" if "incompatible" in text else str(error)
    return "committed"


def test_every_pair_of_operations_is_judged_as_by_the_reference(bases, tmp_path) -> None:
    base = bases[False]
    made = {name: make(base) for name, make in OPERATIONS.items()}
    stored = {}
    for name, operation in made.items():
        path = copied(base, tmp_path / name)
        lance.LanceDataset.commit(path, operation, read_version=base.version)
        stored[name] = open_snapshot(located(path)).transaction.operation
    different = {}
    for theirs in made:
        for mine, operation in made.items():
            expected = answer_of_reference(tmp_path / theirs, operation, base.version)
            found = ANSWERS[judge(stored[mine], stored[theirs]).outcome]
            if found != expected:
                different[mine, theirs] = (expected, found)
            if expected == "committed":
                forget_from(tmp_path / theirs, base.version + 2)
    assert different == DEVIATIONS


DEVIATIONS = {
    ("index b", "project"): ("committed", "try again"),
    ("index a of 3", "project, kept"): ("committed", "try again"),
    ("index a again", "project, kept"): ("committed", "try again"),
    ("index b", "rewrite column b of 0"): ("committed", "try again"),
    ("index b", "rewrite column b of 1"): ("committed", "try again"),
    ("project", "schema metadata"): ("committed", "try again"),
    ("project", "schema metadata gone"): ("committed", "try again"),
    ("project, kept", "schema metadata"): ("committed", "try again"),
    ("project, kept", "schema metadata gone"): ("committed", "try again"),
}
"""Answers of the reference, and ours, that differ on purpose, for our operation after theirs.

The reference commits an index on a column that was dropped in the meantime. Its own readers then
raise an error for every filter on such a table. It commits an index that was built before the
values of its column were rewritten in place; filters then return rows by their old values. It
commits a schema without columns after a change of the metadata of the schema, and loses the change.
"""


def forget_from(path: Path, version: int) -> None:
    """Take a table back to before a version."""
    for file in (path / "_versions").iterdir():
        found = parse_manifest_name(file.name)
        if found is None or found.version >= version:
            file.unlink()


def content(snapshot: Snapshot) -> dict[str, object]:
    """Return everything that a version says but who wrote it and when."""
    manifest = snapshot.manifest
    apart = {"timestamp_ns", "transaction_file", "writer_version", "fragments", "ancestors"}
    found = {f.name: getattr(manifest, f.name) for f in fields(manifest) if f.name not in apart}
    indices = [replace(index, created_at=None) for index in snapshot.indices.indices]
    return {
        **found,
        "fragments": [content_of_fragment(fragment) for fragment in snapshot.fragments],
        "indices": indices,
        "operation": snapshot.transaction.operation,
    }


def content_of_fragment(fragment: Fragment) -> tuple[object, ...]:
    def numbers(stored: object, kind: type) -> object:
        if not isinstance(stored, Inline):
            return stored
        return kind.parse(stored.data, expected_rows=fragment.physical_rows).to_array().tolist()

    return (
        replace(fragment, row_ids=None, last_updated_at_versions=None, created_at_versions=None),
        numbers(fragment.row_ids, RowIdSequence),
        numbers(fragment.last_updated_at_versions, VersionSequence),
        numbers(fragment.created_at_versions, VersionSequence),
    )


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_makes_the_version_that_the_reference_makes(
    bases, tmp_path, name: str, stable: bool
) -> None:
    base = bases[stable]
    if stable and name in NEEDS_ADDRESSES_AS_IDS:
        with pytest.raises(OSError, match="row ids"):
            lance.LanceDataset.commit(copied(base, tmp_path / "t"), OPERATIONS[name](base), 3)
        return
    operation = OPERATIONS[name](base)
    path, ours = copied(base, tmp_path / "reference"), copied(base, tmp_path / "ours")
    lance.LanceDataset.commit(path, operation, read_version=base.version)
    expected = open_snapshot(located(path))
    found = commit(located(ours), expected.transaction)
    if stable and name == "update all of 0":
        # The rows got new ids, which the index does not have: the reference covers them anyway.
        (index,) = expected.indices.indices
        assert set(index.fragment_bitmap) == {0, 1, 2, 3, 4}
        assert set(found.indices.indices[0].fragment_bitmap) == {0, 1, 2, 3}
        return
    assert content(found) == content(expected)
    assert content(open_snapshot(located(ours))) == content(found)
    lance.dataset(ours).validate()
    assert lance.dataset(ours).to_table() == lance.dataset(path).to_table()


NEEDS_ADDRESSES_AS_IDS = ("rewrite 0 and 1", "rewrite 2")
"""Raw rewrites that bring no row ids, which tables with stable ones refuse."""


def history(root: Path, *, stable: bool) -> None:
    """Let the reference change a table in every way its users can."""
    ds = lance.write_dataset(people(40), root, max_rows_per_file=10, enable_stable_row_ids=stable)
    lance.write_dataset(people(5, 40), root, mode="append")
    ds = lance.dataset(root)
    ds.create_scalar_index("a", "BTREE")
    ds.create_scalar_index("b", "BITMAP")
    ds.create_scalar_index("s", "ZONEMAP")
    ds.create_scalar_index("s", "NGRAM", name="grams")
    ds.update({"b": "100"}, where="a = 8")
    ds.update({"b": "101"}, where="a >= 8 and a < 12")
    ds.delete("a in (1, 7)")
    ds.delete("a >= 30 and a < 40")
    upsert = ds.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(people(6, 42))
    some_columns = pa.table({"a": [3, 4, 22], "b": [7, 8, 9]})
    ds.merge_insert("a").when_matched_update_all().execute(some_columns)
    ds.merge_insert("a").when_not_matched_insert_all().execute(people(5, 100))
    ds.add_columns({"c": "a + 1"})
    ds.add_columns(pa.schema([pa.field("n", pa.int32())]))
    ds.update({"c": "0"}, where="a = 20")
    ds.alter_columns({"path": "s", "name": "ss"})
    ds.drop_index("b_idx")
    ds.alter_columns({"path": "b", "data_type": pa.int32()})
    ds.drop_columns(["c"])
    ds.optimize.compact_files(target_rows_per_fragment=30)
    ds.optimize.optimize_indices()
    ds.update({"n": "1"}, where="a < 25")
    ds.add_bases([lance.DatasetBasePath(str(root.parent / "elsewhere"), name="more")])
    ds.delete("true")
    other = people(5, 50).rename_columns(["a", "q", "ss"])
    lance.write_dataset(other, root, mode="overwrite")
    lance.write_dataset(people(3, 50), root, mode="overwrite", data_storage_version="2.1")
    lance.dataset(root, version=7).restore()


def people(rows: int, start: int = 0) -> pa.Table:
    ids = np.arange(start, start + rows)
    return pa.table({"a": ids, "b": ids % 7, "s": [f"text {n}" for n in ids]})


@pytest.mark.parametrize("stable", [False, True])
def test_a_history_of_the_reference_is_made_again(tmp_path, stable: bool) -> None:
    root = tmp_path / "theirs"
    history(root, stable=stable)
    for version in range(1, lance.dataset(root).version + 1):
        expected = open_snapshot(located(root), version)
        path = before(root, version, tmp_path / f"before-{version}")
        options = CommitOptions(
            stable_row_ids=stable and version == 1, data_version=expected.manifest.data_version
        )
        found = commit(located(path), expected.transaction, options)
        assert content(found) == content(expected)
        theirs = lance.dataset(path)
        theirs.validate()
        assert theirs.to_table() == lance.dataset(root, version=version).to_table()
        if "n" not in theirs.schema.names:
            assert (
                theirs.to_table(filter="a = 8")
                == theirs.scanner(filter="a = 8", use_scalar_index=False).to_table()
            )


def before(root: Path, version: int, path: Path) -> Path:
    """Copy a table as it was before a version."""
    shutil.copytree(root, path, copy_function=os.link)
    forget_from(path, version)
    return path

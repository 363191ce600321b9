"""Goal: what the reference puts into manifests and transactions is read, and written back alike.

Method: tables with every operation and feature that the reference offers; each manifest file is
parsed to values and rendered anew. The messages must be equal as messages, and the reference
must read the table from the rendered files.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lancelet.buffers import ByteSlices, run
from lancelet.format.flags import check_readable, check_writable
from lancelet.format.key_filter import BloomFilter, KeyFilter
from lancelet.format.manifest_file import (
    StoredManifest,
    parse_manifest_file,
    read_indices,
    read_transaction,
    render_manifest_file,
)
from lancelet.format.operation import Append, Update
from lancelet.format.paths import parse_manifest_name
from lancelet.format.protos import table_pb, transaction_pb
from lancelet.format.transaction import Transaction
from lancelet.kernels import xxh64_many

pytestmark = pytest.mark.interop

Op = lance.LanceOperation


def numbers(rows: int, start: int = 0) -> pa.Table:
    ids = np.arange(start, start + rows)
    return pa.table({"a": ids, "b": ids % 7, "s": [f"text {n}" for n in ids]})


def commit(ds: lance.LanceDataset, operation: object) -> lance.LanceDataset:
    return lance.LanceDataset.commit(ds, operation, read_version=ds.version)


def plain(root: Path) -> None:
    ds = lance.write_dataset(numbers(20), root, max_rows_per_file=5)
    lance.write_dataset(numbers(5, 20), root, mode="append")
    ds = lance.dataset(root)
    ds.delete("a in (1, 7)")
    ds.delete("a < 5")
    ds.update({"b": "100"}, where="a = 8")
    ds.add_columns({"c": "a + 1"})
    ds.alter_columns({"path": "b", "name": "bb"})
    ds.alter_columns({"path": "bb", "data_type": pa.int32()})
    ds.drop_columns(["c"])
    ds.create_scalar_index("a", "BTREE")
    ds.optimize.compact_files(target_rows_per_fragment=100)
    ds.restore()
    ds.update_config({"k": "v", "lance.x": "1"})
    ds.delete_config_keys(["k"])
    ds.update_metadata({"m": "n"})
    ds.update_schema_metadata({"s": "t"}, replace=True)
    ds.update_field_metadata({"a": {"f": "g"}})
    ds.drop_index("a_idx")
    lance.write_dataset(numbers(3), root, mode="overwrite")


def stable_row_ids(root: Path) -> None:
    ds = lance.write_dataset(numbers(20), root, max_rows_per_file=5, enable_stable_row_ids=True)
    ds.update({"b": "5"}, where="a % 3 = 0")
    ds.delete("a = 2")
    ds.optimize.compact_files(target_rows_per_fragment=100)
    ds.update_config({"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"})
    ds.update({"b": "6"}, where="a > 4")


def keyed(root: Path) -> None:
    key = pa.field(
        "a", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
    )
    schema = pa.schema([key, pa.field("b", pa.int64()), pa.field("s", pa.string())])
    ds = lance.write_dataset(numbers(10).cast(schema), root)
    for table in (numbers(10, 5), numbers(2).select(["a", "b"])):
        builder = ds.merge_insert("a").when_matched_update_all()
        if "s" in table.column_names:
            builder = builder.when_not_matched_insert_all()
        builder.execute(table.cast(pa.schema([f for f in schema if f.name in table.column_names])))
        ds = lance.dataset(root)


def bases(root: Path) -> None:
    other = root.parent / "elsewhere"
    other.mkdir()
    lance.write_dataset(
        numbers(4),
        root,
        initial_bases=[lance.DatasetBasePath(str(other), "cold", is_dataset_root=True)],
        target_bases=["cold"],
    )


def clones(root: Path) -> None:
    source = root.parent / "source"
    ds = lance.write_dataset(numbers(4), source)
    ds.tags.create("tagged", 1)
    ds.shallow_clone(root, "tagged")
    lance.write_dataset(numbers(2), root, mode="append")
    lance.dataset(root).delete("a = 0")
    branch = lance.dataset(root).create_branch("dev/x")
    lance.write_dataset(numbers(1), branch.uri, mode="append")


def first_naming(root: Path) -> None:
    lance.write_dataset(numbers(4), root, enable_v2_manifest_paths=False)
    lance.write_dataset(numbers(4), root, mode="append")


def old_files(root: Path) -> None:
    table = pa.table({"d": pa.array(["x", "y", "x"]).dictionary_encode(), "n": [1, 2, 3]})
    lance.write_dataset(table, root, data_storage_version="legacy")
    lance.write_dataset(table, root, mode="append")


def raw_operations(root: Path) -> None:
    ds = lance.write_dataset(numbers(10), root, max_rows_per_file=5)
    first, second = (fragment.metadata for fragment in ds.get_fragments())
    file = replace(first, files=second.files).files[0]
    ds = commit(
        ds,
        Op.Update(
            updated_fragments=[first],
            fields_modified=[1],
            update_mode="rewrite_columns",
            updated_fragment_offsets={0: BitMap([1, 3]).serialize()},
        ),
    )
    ds = commit(ds, Op.DataReplacement([Op.DataReplacementGroup(0, file)]))
    ds = commit(ds, Op.Rewrite([Op.RewriteGroup([first], [replace(first, id=7)])], []))
    ds = commit(ds, Op.Merge([replace(first, id=7), second], ds.lance_schema))
    ds = commit(ds, Op.Project(ds.lance_schema))
    ds.add_bases([lance.DatasetBasePath(str(root.parent / "more"), "more")])


def overlays(root: Path) -> None:
    ds = lance.write_dataset(numbers(10), root, max_rows_per_file=5)
    file = ds.get_fragments()[1].metadata.files[0]
    groups = [
        Op.DataOverlayGroup(0, [Op.DataOverlayFile(file, [1, 3])]),
        Op.DataOverlayGroup(1, [Op.DataOverlayFile(file, [[1], [2], [3]])]),
    ]
    commit(ds, Op.DataOverlay(groups))


def indices(root: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(rng.random(512 * 8, np.float32), 8)
    ds = lance.write_dataset(numbers(512).append_column("v", vectors), root, max_rows_per_file=200)
    ds.create_scalar_index("s", "INVERTED")
    ds.create_scalar_index("b", "BITMAP")
    ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    lance.write_dataset(numbers(20).append_column("v", vectors[:20]), root, mode="append")
    ds = lance.dataset(root)
    ds.optimize.optimize_indices(num_indices_to_merge=0)
    ds.delete("a % 5 = 0")
    ds.optimize.compact_files(target_rows_per_fragment=1000, defer_index_remap=True)
    lance.dataset(root).initialize_mem_wal(unsharded=True)


BUILDERS: list[Callable[[Path], None]] = [
    plain, stable_row_ids, keyed, bases, clones, first_naming, old_files, raw_operations,
    overlays, indices,
]  # fmt: skip


def whole(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def read(data: bytes) -> tuple[StoredManifest, object, Transaction | None]:
    stored = parse_manifest_file(whole(data))
    fetch = lambda wanted: ByteSlices(whole(data), wanted.position, wanted.size)  # noqa: E731
    return stored, run(read_indices(stored), fetch), run(read_transaction(stored), fetch)


def message_of(data: bytes) -> table_pb.Manifest:
    stored = parse_manifest_file(whole(data))
    manifest = table_pb.Manifest.FromString(data[stored.position + 4 : -16])
    for section in ("index_section", "transaction_section", "transaction_section_deprecated"):
        manifest.ClearField(section)
    return manifest


def section_of(data: bytes, position: int | None) -> bytes:
    if position is None:
        return b""
    size = int.from_bytes(data[position : position + 4], "little")
    return data[position + 4 :][:size]


def check_file(path: Path) -> bytes:
    """Check that a manifest file means the same after a round through our values."""
    data = path.read_bytes()
    stored, indices, transaction = read(data)
    name = parse_manifest_name(path.name)
    assert name is not None
    assert name.version == stored.manifest.version
    schema_ends = [field.dictionary for field in stored.manifest.schema.walk() if field.dictionary]
    first = min(
        p for p in (stored.positions.index, stored.positions.transaction, stored.position)
        if p is not None
    )  # fmt: skip
    prefix = data[:first] if schema_ends else b""
    assert len(prefix) == first
    rendered = render_manifest_file(stored.manifest, indices, transaction, dictionary_values=prefix)
    assert message_of(rendered) == message_of(data)
    again = parse_manifest_file(whole(rendered))
    assert again.manifest == stored.manifest
    for kind, position, ours in (
        (table_pb.IndexSection, stored.positions.index, again.positions.index),
        (transaction_pb.Transaction, stored.positions.transaction, again.positions.transaction),
    ):
        theirs = section_of(data, position)
        assert kind.FromString(section_of(rendered, ours)) == kind.FromString(theirs)
        assert (position is None) == (ours is None)
    return rendered


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_a_table_reads_identically_from_rendered_manifests(
    build: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if build is overlays:
        monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    root = tmp_path / "t"
    build(root)
    before = [look_at(root, version["version"]) for version in lance.dataset(root).versions()]
    for path in sorted(tmp_path.rglob("*.manifest")):
        path.write_bytes(check_file(path))
    for path in sorted(tmp_path.rglob("*.txn")):
        transaction = Transaction.parse(path.read_bytes())
        assert transaction.file_name == path.name
        proto = transaction_pb.Transaction.FromString(path.read_bytes())
        assert transaction_pb.Transaction.FromString(transaction.render()) == proto
        path.write_bytes(transaction.render())
    if build is not overlays:
        after = [look_at(root, version["version"]) for version in lance.dataset(root).versions()]
        assert after == before


def look_at(root: Path, version: int) -> tuple[object, ...]:
    """Return what the reference says of a version, from caches of no earlier look."""
    ds = lance.dataset(root, version=version, session=lance.Session())
    try:
        transaction = repr(ds.read_transaction(version))
    except TypeError:  # the reference cannot show a rewrite that maps an index
        transaction = ""
    try:
        rows = ds.to_table(with_row_id=True).to_pylist()
    except NotImplementedError:
        rows = []
    return (
        rows,
        ds.schema.to_string(),
        ds.count_rows(),
        [fragment.metadata.to_json() for fragment in ds.get_fragments()],
        sorted(map(repr, ds.describe_indices())),
        ds.config(),
        "" if "0x" in transaction else transaction,
    )


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_flags_follow_from_content_as_the_reference_sets_them(
    build: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    build(tmp_path / "t")
    for path in sorted(tmp_path.rglob("*.manifest")):
        manifest = parse_manifest_file(whole(path.read_bytes())).manifest
        derived = manifest.with_flags()
        flags = (manifest.reader_flags, manifest.writer_flags)
        assert (derived.reader_flags, derived.writer_flags) == flags
        if build is not overlays:
            check_readable(*flags)
            check_writable(*flags)
        assert manifest.max_fragment_id == max_fragment_id(path)


def max_fragment_id(path: Path) -> int | None:
    message = message_of(path.read_bytes())
    return message.max_fragment_id if message.HasField("max_fragment_id") else None


OVERLAYS = 6
"""The bit of a feature that the reference reads only where its environment says so."""


@pytest.mark.parametrize("bit", [bit for bit in range(18) if bit != OVERLAYS])
def test_each_flag_is_accepted_or_rejected_as_the_reference_does(bit: int, tmp_path: Path) -> None:
    lance.write_dataset(numbers(3), tmp_path / "t", enable_stable_row_ids=bit == 1)
    (path,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    stored, indices, transaction = read(path.read_bytes())
    for reader, writer in ((1, 0), (0, 1), (1, 1)):
        flags = (reader << bit, writer << bit)
        counted = 2 if writer and 1 << bit == 32768 else None
        manifest = replace(
            stored.manifest,
            reader_flags=flags[0],
            writer_flags=flags[1],
            max_allocated_field_id=counted,
        )
        path.write_bytes(render_manifest_file(manifest, indices, transaction))
        assert accepts(lambda flags=flags: check_readable(*flags)) == accepts(
            lambda: lance.dataset(tmp_path / "t", session=lance.Session())
        ), flags


def accepts(action: Callable[[], object]) -> bool:
    try:
        action()
    except (OSError, ValueError, NotImplementedError):
        return False
    return True


def inserted_rows(root: Path) -> list[KeyFilter]:
    operations = [
        Transaction.parse(path.read_bytes()).operation
        for path in sorted((root / "_transactions").iterdir())
    ]
    updates = [operation for operation in operations if isinstance(operation, Update)]
    return [update.inserted_rows for update in updates if update.inserted_rows is not None]


def hashes_of(keys: list[bytes]) -> np.ndarray:
    offsets = np.cumsum([0, *map(len, keys)])
    return xxh64_many(offsets, whole(b"".join(keys)))


def test_the_filter_of_inserted_keys_is_the_one_the_reference_makes(tmp_path: Path) -> None:
    keyed(tmp_path / "t")
    first, second = inserted_rows(tmp_path / "t")
    keys = [n.to_bytes(8, "little") for n in range(10, 15)]
    assert first == KeyFilter((0,), BloomFilter.of(hashes_of(keys)))
    assert second == KeyFilter((0,), BloomFilter.of(hashes_of([])))


def test_the_reference_reads_a_table_that_was_committed_here(tmp_path: Path) -> None:
    root = tmp_path / "t"
    ds = lance.write_dataset(numbers(10), root, max_rows_per_file=5)
    path = root / "_versions" / f"{2**64 - 2:020}.manifest"
    stored, indices, _ = read(path.read_bytes())
    before = stored.manifest
    added = replace(before.fragments[0], id=2)
    fragments = before.fragments.appended([added])
    manifest = replace(before, version=2, fragments=fragments, max_fragment_id=2)
    transaction = Transaction(1, str(uuid.uuid4()), Append((replace(added, id=0),)), {"p": "q"})
    manifest = replace(manifest, transaction_file=transaction.file_name)
    (root / "_transactions" / transaction.file_name).write_bytes(transaction.render())
    (root / "_versions" / f"{2**64 - 3:020}.manifest").write_bytes(
        render_manifest_file(manifest, indices, transaction)
    )
    ds = lance.dataset(root, session=lance.Session())
    assert ds.version == 2
    assert ds.count_rows() == 15
    assert ds.read_transaction(2).transaction_properties == {"p": "q"}
    ds.delete("a = 0")
    assert lance.dataset(root).count_rows() == 13

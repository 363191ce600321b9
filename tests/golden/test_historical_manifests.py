"""Manifests of old pylance releases and their expected content.

The datasets are described in `historical/README.md`; they never change. What older releases left
out must not be an error: row counts (`v0.7.5`), the writer, the version of the data files.
"""

from pathlib import Path

import numpy as np
import pytest

from lancelet.buffers import ByteSlices, run
from lancelet.format.flags import check_writable
from lancelet.format.manifest_file import (
    parse_manifest_file,
    read_indices,
    read_transaction,
    render_manifest_file,
)
from lancelet.format.transaction import Transaction
from lancelet.rowids.deletion import DeletionVector

ROOT = Path(__file__).parent / "historical"

# What each manifest says: data file version, fragments, live rows as stated, flags of readers
# and of writers, and the fragments that each index segment covers.
EXPECTED = {
    "v0.5.9/no_fragments/_versions/1.manifest": ("0.1", 0, 0, 0, 0, []),
    "v0.7.5/with_deletions/_versions/1.manifest": ("0.1", 1, 0, 0, 0, []),
    "v0.7.5/with_deletions/_versions/2.manifest": ("0.1", 1, 0, 1, 1, []),
    "v0.10.5/corrupt_schema/_versions/1.manifest": ("0.1", 1, 2, 0, 0, []),
    "v0.10.5/corrupt_schema/_versions/6.manifest": ("0.1", 2, 4, 0, 0, []),
    "v0.15.0/v1_with_files.lance/_versions/1.manifest": ("0.1", 1, 3, 0, 0, []),
    "v0.15.0/v2_with_files.lance/_versions/1.manifest": ("2.0", 1, 3, 0, 4, []),
    "v0.16.0/wrong_data_version_can_fix.lance/_versions/1.manifest": ("2.0", 0, 0, 0, 0, []),
    "v0.16.0/wrong_data_version_can_fix.lance/_versions/2.manifest": ("0.1", 3, 3, 0, 0, []),
    "v0.20.0/old_btree_bitmap_indices.lance/_versions/3.manifest": (
        "2.0", 1, 4, 0, 0, [{0}, {0}],
    ),
    "v0.21.0/bad_index_fragment_bitmap/_versions/4.manifest": (
        "2.0", 2, 288, 0, 0, [{0}, {0, 1}],
    ),
    "v0.27.1/pq_in_schema/_versions/2.manifest": ("2.0", 1, 512, 0, 8, [{0}]),
}  # fmt: skip


@pytest.mark.parametrize("path", EXPECTED)
def test_an_old_manifest_has_the_recorded_content(path: str) -> None:
    data = np.fromfile(ROOT / path, np.uint8)
    fetch = lambda wanted: ByteSlices(data, wanted.position, wanted.size)  # noqa: E731
    stored = parse_manifest_file(data)
    manifest, indices = stored.manifest, run(read_indices(stored), fetch)
    flags = manifest.reader_flags, manifest.writer_flags
    covered = [set(index.fragment_bitmap) for index in indices.indices]
    found = (manifest.data_version.value, len(manifest.fragments), manifest.num_rows, *flags)
    assert (*found, covered) == EXPECTED[path]
    check_writable(*flags)
    assert run(read_transaction(stored), fetch) is None
    if manifest.transaction_file:
        folder = (ROOT / path).parent.parent / "_transactions"
        transaction = Transaction.parse((folder / manifest.transaction_file).read_bytes())
        assert transaction.file_name == manifest.transaction_file
        assert transaction.read_version < manifest.version
    again = parse_manifest_file(np.frombuffer(render_manifest_file(manifest, indices, None), "u1"))
    assert again.manifest == manifest


def test_deletions_are_read_where_the_manifest_does_not_count_them() -> None:
    root = ROOT / "v0.7.5/with_deletions"
    stored = parse_manifest_file(np.fromfile(root / "_versions/2.manifest", np.uint8))
    (fragment,) = stored.manifest.fragments
    file = fragment.deletion_file
    assert (fragment.physical_rows, file.num_deleted_rows) == (0, 0)
    vector = DeletionVector.parse((root / file.path(fragment.id)).read_bytes(), file.file_type)
    assert len(vector) == 10

"""Splits of a table have about the same size."""

import uuid

import pyarrow as pa

import lancelet
from lancelet.format.fragment_list import FragmentList
from lancelet.jobs.split import estimate_bytes
from lancelet.table.snapshot import unsaved_snapshot
from lancelet.values import replace


def test_files_without_a_recorded_size_are_estimated() -> None:
    dataset = lancelet.write_dataset(
        pa.table({"id": pa.array(range(100), pa.int64())}), f"memory://split-{uuid.uuid4()}/t"
    )
    snapshot = dataset.snapshot
    (fragment,) = snapshot.fragments
    (file,) = fragment.files
    fields = snapshot.schema.fields
    known = replace(fragment, files=(replace(file, size_bytes=5000),))
    unknown = replace(fragment, files=(replace(file, size_bytes=None),))
    assert estimate_bytes(replace_fragments(snapshot, known), fields=fields) == 5000
    assert estimate_bytes(replace_fragments(snapshot, unknown), fields=fields) == 800


def replace_fragments(snapshot, fragment):
    manifest = replace(snapshot.manifest, fragments=FragmentList.of((fragment,)))
    return unsaved_snapshot(snapshot.location, manifest)

"""Blobs that are written before their rows, and the columns of their positions."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.blob import BlobDescriptor, BlobDescriptorArrayBuilder
from lancelet.errors import InvalidInputError
from lancelet.file import LanceFileSession

PAYLOADS = st.lists(st.none() | st.binary(max_size=6), max_size=8)


def packed(folder):
    return LanceFileSession(folder).open_packed_blob_writer("a.lance", 7)


@given(PAYLOADS, st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]), st.data())
def test_descriptors_locate_the_written_bytes(tmp_path_factory, payloads, kind, data):
    folder = tmp_path_factory.mktemp("blobs")
    start = data.draw(st.integers(0, len(payloads)))
    writer = packed(folder)
    writer.write_blobs(pa.array(payloads, kind).slice(start))
    rows = writer.finish_array("b").to_pylist()
    (sidecar,) = folder.rglob("*.blob")
    stored = sidecar.read_bytes()
    assert stored == b"".join(each for each in payloads[start:] if each is not None)
    found = [None if row is None else stored[row["position"] :][: row["blob_size"]] for row in rows]
    assert found == payloads[start:]


def test_inconsistent_arrays_are_rejected_before_any_write(tmp_path):
    offsets = pa.array([0, 2, 1, 2], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"ab")])
    writer = packed(tmp_path)
    with pytest.raises(InvalidInputError, match="chunk 1 has invalid Arrow data"):
        writer.write_blobs(pa.chunked_array([pa.array([b"good"]), bad]))
    with pytest.raises(InvalidInputError, match="Binary"):
        writer.write_blobs(pa.array([1]))
    writer.write_blob(b"after")
    assert [repr(blob) for blob in writer.finish()] == ["Packed { blob_id: 7, offset: 0, size: 5 }"]


def test_columns_are_built_of_all_kinds(tmp_path):
    builder = BlobDescriptorArrayBuilder("b")
    writer = packed(tmp_path)
    writer.write_blobs(pa.array([b"xy", None]))
    builder.extend(writer.finish())
    builder.append_inline(b"abc")
    builder.append_dedicated(3, 99)
    builder.extend_packed(7, [0, 5], [5, 6])
    builder.append_managed("a/b", 1, 2, base_id=4)
    builder.append_null()
    column = builder.finish()
    assert [None if row is None else row["kind"] for row in column.to_pylist()] == [
        *(1, None, 0, 2, 1, 1, 5, None)
    ]
    assert builder.field.metadata == {b"ARROW:extension:name": b"lance.blob.v2"}
    with pytest.raises(InvalidInputError, match="already finished"):
        builder.append_null()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.extend_packed(1, [1, 2], [1]), "same length"),
        (lambda b: b.append_dedicated(0, 1), "reserved"),
        (lambda b: b.append_managed("/abs", 0, 1), "canonical"),
        (lambda b: b.append_managed("a/../b", 0, 1), "canonical"),
        (lambda b: b.extend_packed(1, [-1], [1]), "negative"),
    ],
)
def test_impossible_positions_are_rejected(change, message):
    with pytest.raises(InvalidInputError, match=message):
        change(BlobDescriptorArrayBuilder("b"))


def test_only_writers_make_descriptors():
    with pytest.raises(TypeError):
        BlobDescriptor()
    with pytest.raises(InvalidInputError, match="wrong type"):
        BlobDescriptorArrayBuilder("b").append(b"bytes")


def test_rows_point_to_blobs_that_were_written_before(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64()), lancelet.blob_field("b")])
    first = pa.table({"id": [0, 1], "b": lancelet.blob_array([b"x", None])}, schema=schema)
    dataset = lancelet.write_dataset(first, tmp_path / "t", data_storage_version="2.2")
    session = LanceFileSession(tmp_path / "t/data")
    writer = session.open_packed_blob_writer("new.lance", 1)
    writer.write_blob(b"packed")
    builder = BlobDescriptorArrayBuilder("b")
    builder.extend(writer.finish())
    builder.append_inline(b"inline")
    stored = pa.schema([schema.field("id"), builder.field])
    with session.open_writer("new.lance", schema=stored, version="2.2") as file:
        file.write_batch(pa.record_batch([pa.array([5, 6]), builder.finish()], schema=stored))
    data_file = lancelet.fragment.DataFile.create(dataset, "new.lance")
    group = lancelet.LanceOperation.DataReplacementGroup(0, data_file)
    dataset = lancelet.LanceDataset.commit(
        dataset, lancelet.LanceOperation.DataReplacement([group]), read_version=1
    )
    assert [data for _, data in dataset.read_blobs("b", indices=[0, 1])] == [b"packed", b"inline"]

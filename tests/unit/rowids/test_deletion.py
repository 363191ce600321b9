"""Laws of deletion vectors: both files give the offsets back, and the form never goes back."""

import contextlib
import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.fragment import DeletionFileType
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector

OFFSETS = st.sets(st.one_of(st.integers(0, 200), st.integers(0, 2**32 - 1)), max_size=60)
ARROW, BITMAP = DeletionFileType.ARROW_ARRAY, DeletionFileType.BITMAP


@given(OFFSETS)
def test_both_files_give_the_vector_back(offsets):
    vector = DeletionVector.of(sorted(offsets))
    for form in (vector, vector.as_bitmap()):
        assert DeletionVector.parse(form.render("d"), form.file_type) == form
    assert vector.to_array().tolist() == sorted(offsets)


@given(st.sets(st.integers(0, 99)))
def test_live_rows_are_those_not_deleted(offsets):
    vector = DeletionVector.of(sorted(offsets))
    live = [offset for offset in range(100) if offset not in offsets]
    assert vector.live_offsets(100).tolist() == live
    assert vector.physical_offsets(np.arange(len(live))).tolist() == live


def test_many_deletions_are_a_bitmap_and_stay_one():
    assert DeletionVector.of(range(4999)).file_type is ARROW
    many = DeletionVector.of(range(5000))
    assert many.file_type is BITMAP
    assert many.union(BitMap([7])).file_type is BITMAP
    assert DeletionVector.of([1]).as_bitmap().union(BitMap([2])).file_type is BITMAP
    assert DeletionVector.of([1]).union(BitMap([2])).file_type is ARROW
    assert len(NO_DELETIONS) == 0


def test_a_row_after_the_end_is_corrupt():
    with pytest.raises(CorruptDataError):
        DeletionVector.of([5]).live_offsets(5)


@pytest.mark.parametrize("offset", [-1, 2**32])
def test_an_offset_has_32_bits(offset):
    with pytest.raises(InvalidInputError):
        DeletionVector.of([offset])


def arrow_file(batches: list[pa.RecordBatch], schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


U32 = pa.schema([pa.field("row_id", pa.uint32())])
ONE = pa.record_batch([pa.array([1], pa.uint32())], schema=U32)
WIDE = pa.record_batch({"row_id": pa.array([1], pa.int64())})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ARROW1",
        arrow_file([], U32),
        arrow_file([ONE, ONE], U32),
        arrow_file([pa.record_batch([pa.array([None], pa.uint32())], schema=U32)], U32),
        arrow_file(
            [pa.record_batch({"row_id": pa.array([1])})], pa.schema([("row_id", pa.int64())])
        ),
    ],
)
def test_an_invalid_arrow_file_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        DeletionVector.parse(data, ARROW)


@given(st.sampled_from([ARROW, BITMAP]), st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_file_is_a_vector_or_corrupt(form, place, value):
    vector = DeletionVector.of(range(0, 3000, 3))
    data = bytearray((vector.as_bitmap() if form is BITMAP else vector).render("d"))
    data[place % len(data)] = value
    with contextlib.suppress(CorruptDataError):
        assert len(DeletionVector.parse(bytes(data), form)) <= 2**32


@pytest.mark.parametrize("expected", [0, 2**32])
def test_a_file_that_claims_all_rows_there_could_be_is_rejected_at_once(expected):
    everything = BitMap()
    everything.add_range(0, 2**32)
    claimed = DeletionVector.parse(
        DeletionVector(FrozenBitMap(everything), BITMAP).render("d"), BITMAP
    )
    assert len(claimed) == 2**32
    with pytest.raises(CorruptDataError, match="out of range"):
        claimed.validated(1000, expected)


def test_a_vector_must_have_the_rows_that_the_manifest_counts():
    vector = DeletionVector.of([0, 7, 9])
    assert vector.validated(10, 3) is vector
    assert vector.validated(10, 0) is vector
    for counted in (2, 4):
        with pytest.raises(CorruptDataError, match="disagree") as caught:
            vector.validated(10, counted)
        assert (caught.value.facts["expected"], caught.value.facts["found"]) == (counted, 3)


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
@pytest.mark.parametrize("physical_rows", [100, 1 << 32])
def test_a_file_with_more_rows_than_its_fragment_takes_no_memory(compression, physical_rows):
    rows = 20_000_000 if compression else 1000
    sink = io.BytesIO()
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch([pa.array(np.zeros(rows, np.uint32))], schema=schema))
    data = sink.getvalue()
    assert len(data) < 1 << 20
    before = pa.default_memory_pool().max_memory()
    if compression is None and physical_rows > rows:
        parsed = DeletionVector.parse(data, DeletionFileType.ARROW_ARRAY)
        assert len(parsed) == 1
        return
    with pytest.raises(CorruptDataError, match="more rows than its fragment"):
        DeletionVector.parse(data, DeletionFileType.ARROW_ARRAY, physical_rows=physical_rows)
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_a_damaged_file_is_corrupt(compression):
    sink = io.BytesIO()
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(
            pa.record_batch([pa.array(np.arange(64, dtype=np.uint32))], schema=schema)
        )
    data = sink.getvalue()
    for cut in range(len(data)):
        with pytest.raises(CorruptDataError):
            DeletionVector.parse(data[:cut], DeletionFileType.ARROW_ARRAY)
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        with contextlib.suppress(CorruptDataError):
            DeletionVector.parse(damaged, DeletionFileType.ARROW_ARRAY, physical_rows=64)

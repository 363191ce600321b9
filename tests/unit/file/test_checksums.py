"""Checksums cover every byte of a file, and a read verifies the blocks that it accesses once.

A file is written, one bit is flipped, and it is read. For every bit, the read fails or its rows
are the right ones; and it fails naming a range with the damage in it.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteRanges, ByteSlices
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError, LanceletError
from lancelet.file.checksums import (
    CHECKSUM_BLOCK_BYTES,
    ChecksumBuilder,
    Checksums,
    VerifiedBytes,
    Verify,
    checksum_size,
    is_checksum_size,
)
from lancelet.file.open import open_data_file
from lancelet.format.version import FileVersion
from lancelet.io import mapped
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from lancelet.kernels import crc32c

BLOCK = 4096
ROWS = 12_000


def make_table():
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "id": pa.array(rng.integers(0, 1 << 40, ROWS)),
            "name": pa.array([f"name {value}" for value in rng.integers(0, 10**9, ROWS)]),
        }
    )


def checksums_of(data):
    """Checksums of `data`, stored outside of it."""
    builder = ChecksumBuilder(BLOCK)
    builder.update(data)
    return Checksums(BLOCK, data.nbytes, data.nbytes, builder.finish())


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=12), st.integers(0, 1 << 32))
def test_checksums_do_not_depend_on_how_the_file_is_written(sizes, seed):
    data = np.random.default_rng(seed).integers(0, 256, sum(sizes)).astype(np.uint8)
    builder = ChecksumBuilder(BLOCK)
    start = 0
    for size in sizes:
        builder.update(data[start : start + size])
        start += size
    blocks = [data[start : start + BLOCK] for start in range(0, data.nbytes, BLOCK)]
    assert builder.finish().tolist() == [crc32c(block) for block in blocks]


@given(st.integers(0, 20), st.integers(0, 1 << 32))
def test_a_buffer_of_checksums_reads_back(blocks, seed):
    crcs = np.random.default_rng(seed).integers(0, 1 << 32, blocks).astype(np.uint32)
    file_bytes = blocks * BLOCK
    checksums = Checksums(BLOCK, 64, file_bytes, crcs)
    data = np.frombuffer(checksums.to_bytes(), np.uint8)
    assert is_checksum_size(data.nbytes, file_bytes)
    assert data.nbytes == checksum_size(file_bytes, BLOCK) == checksums.size
    found = Checksums.parse(data, position=64, file_bytes=file_bytes)
    assert found.crcs.tolist() == crcs.tolist()


@given(st.data())
def test_every_flipped_bit_in_the_buffer_is_detected(data):
    checksums = Checksums(BLOCK, 64, 3 * BLOCK, np.arange(3, dtype=np.uint32))
    buffer = bytearray(checksums.to_bytes())
    bit = data.draw(st.integers(0, 8 * len(buffer) - 1))
    buffer[bit // 8] ^= 1 << bit % 8
    array = np.frombuffer(bytes(buffer), np.uint8)
    with pytest.raises(CorruptDataError, match="checksums of the file are damaged"):
        Checksums.parse(array, position=64, file_bytes=3 * BLOCK)


def test_a_buffer_of_another_writer_is_ignored():
    size = checksum_size(3 * BLOCK, BLOCK)
    assert Checksums.parse(np.zeros(size, np.uint8), position=64, file_bytes=3 * BLOCK) is None


@pytest.mark.parametrize("part", ["position", "size"])
def test_checksums_that_the_table_does_not_name_are_found(store, write, read_all, part):
    write(store, make_table())
    data = bytearray(store.read("f.lance"))
    last_row = len(data) - 40 - 16
    data[last_row + (8 if part == "size" else 0)] ^= 64
    data[5000] ^= 1
    store.put("f.lance", bytes(data))
    with pytest.raises(CorruptDataError, match="does not list the checksums") as caught:
        read_all(store)
    assert caught.value.facts["path"] == "f.lance"
    assert not read_all(store, verify=Verify.OFF).equals(make_table())


@pytest.mark.parametrize("filling", [0, 255, "random"])
@pytest.mark.parametrize("count", [8, 16, 64, 200])
def test_checksums_that_are_overwritten_are_missed(store, write, read_all, filling, count):
    """However much is overwritten in one go, a file never passes for one without checksums."""
    write(store, make_table())
    data = bytearray(store.read("f.lance"))
    start = data.index(b"LLETCRC1")
    garbage = np.random.default_rng(count).bytes(count)
    data[start : start + count] = garbage if filling == "random" else bytes([filling]) * count
    data[5000] ^= 1
    store.put("f.lance", bytes(data))
    with pytest.raises(CorruptDataError):
        read_all(store)


def test_blocks_are_verified_once_for_all_readers_of_a_known_file(
    tmp_path, monkeypatch, write, read_all
):
    # Otherwise files written within the last clock tick are not cached.
    monkeypatch.setattr(mapped, "_CLOCK_NS", 0)
    store = LocalStore(str(tmp_path))
    write(store, make_table())
    assert read_all(store).equals(make_table())
    assert open_data_file(store, "f.lance").metadata.checksums.verified.all()
    data = bytearray(store.read("f.lance"))
    data[5000] ^= 1
    (tmp_path / "f.lance").write_bytes(data)
    with pytest.raises(CorruptDataError, match="checksum"):
        read_all(store)


@pytest.mark.parametrize("size", [0, 8, 63])
def test_a_buffer_that_is_too_short_is_ignored(size):
    data = np.frombuffer(b"LLETCRC1".ljust(size, b"\0")[:size], np.uint8)
    assert Checksums.parse(data, position=0, file_bytes=10) is None


@given(
    st.integers(1, 6 * BLOCK),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 3 * BLOCK)), max_size=8),
    st.booleans(),
    st.integers(0, 1 << 32),
)
def test_verified_ranges_are_the_ranges(size, wanted, is_mapped, seed):
    data = np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)
    ranges = ByteRanges.of(
        *((start % size, min(count, size - start % size)) for start, count in wanted)
    )
    asked = []

    def fetch(ranges):
        if is_mapped:
            return ByteSlices(data, ranges.position, ranges.size)
        asked.extend(zip(ranges.position.tolist(), ranges.size.tolist(), strict=True))
        parts = [data[p : p + s] for p, s in zip(ranges.position, ranges.size, strict=True)]
        ends = np.cumsum(ranges.size)
        return ByteSlices(np.concatenate([data[:0], *parts]), ends - ranges.size, ranges.size)

    verified = VerifiedBytes(fetch, checksums_of(data), Verify.FULL)
    for _ in range(2):
        found = verified.read_ranges(ranges)
        for index in range(len(ranges)):
            start, count = int(ranges.position[index]), int(ranges.size[index])
            assert found.slice_bytes(index).tobytes() == data[start : start + count].tobytes()
    # Verified blocks are not extended again.
    exact = list(zip(ranges.position.tolist(), ranges.size.tolist(), strict=True))
    assert is_mapped or asked[len(asked) // 2 :] == exact


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_read_verifies_the_blocks_it_touches_and_no_others(is_remote):
    data = np.zeros(8 * BLOCK, np.uint8)
    checksums = checksums_of(data)
    damaged = data.copy()
    damaged[3 * BLOCK + 17] ^= 4

    def fetch(ranges):
        if not is_remote:
            return ByteSlices(damaged, ranges.position, ranges.size)
        parts = [damaged[p : p + s] for p, s in zip(ranges.position, ranges.size, strict=True)]
        ends = np.cumsum(ranges.size)
        return ByteSlices(np.concatenate([data[:0], *parts]), ends - ranges.size, ranges.size)

    verified = VerifiedBytes(fetch, checksums, Verify.FULL)
    verified.read_ranges(ByteRanges.of((0, 3 * BLOCK), (4 * BLOCK, 4 * BLOCK)))
    for _ in range(2):
        with pytest.raises(CorruptDataError, match="checksum") as caught:
            verified.read_ranges(ByteRanges.of((0, 10), (4 * BLOCK - 1, 1)))
        assert caught.value.facts["position"] == 3 * BLOCK
        assert caught.value.facts["size"] == BLOCK


def test_ranges_outside_of_the_file_are_left_to_the_store_to_refuse():
    data = np.zeros(BLOCK, np.uint8)

    def fetch(ranges):
        if (ranges.position + ranges.size > BLOCK).any():
            raise CorruptDataError("outside")
        return ByteSlices(data, ranges.position, ranges.size)

    verified = VerifiedBytes(fetch, checksums_of(data), Verify.FULL)
    with pytest.raises(CorruptDataError, match="outside"):
        verified.read_ranges(ByteRanges.of((BLOCK, 5)))


@pytest.mark.parametrize("version", [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2])
@pytest.mark.parametrize("is_remote", [False, True])
def test_no_flipped_bit_gives_wrong_rows(version, is_remote, store, remote, write, read_all):
    store = remote if is_remote else store
    table = make_table()
    write(store, table, version=version)
    data = store.read("f.lance")
    rng = np.random.default_rng(1)
    tail = 3000
    places = [*rng.integers(0, len(data), 60), *rng.integers(len(data) - tail, len(data), 120)]
    refused = []
    for place in map(int, places):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        store.put("f.lance", bytes(damaged))
        try:
            found = read_all(store)
        except LanceletError as error:
            refused.append((place, error.facts))
        else:
            assert found.equals(table), f"a flipped bit at {place} gave wrong rows"
    assert len(refused) > 100
    for place, facts in refused:
        assert facts["path"] == "f.lance"
        if "blocks" in facts:
            assert facts["position"] <= place < facts["position"] + facts["size"]


def test_files_of_other_writers_are_unverified(store, write, read_all):
    table = make_table()
    write(store, table, checksums=False)
    reader = open_data_file(store, "f.lance")
    assert reader.metadata.checksums is None
    assert read_all(store).equals(table)


def test_verification_can_be_turned_off(store, write, read_all):
    table = make_table()
    write(store, table)
    data = bytearray(store.read("f.lance"))
    reader = open_data_file(store, "f.lance")
    page = reader.column(0).pages[0]
    data[int(page.position[1]) + 100] ^= 1
    store.put("f.lance", bytes(data))
    assert not read_all(store, verify=Verify.OFF).equals(table)
    with pytest.raises(CorruptDataError):
        read_all(store)


def test_a_sample_verifies_some_blocks(store, write, read_all):
    rng = np.random.default_rng(0)
    table = pa.table({"x": pa.array(rng.integers(0, 1 << 62, 1_000_000))})
    write(store, table)
    data = bytearray(store.read("f.lance"))
    # A bit of every block of the pages.
    for place in range(CHECKSUM_BLOCK_BYTES // 2, 7_000_000, CHECKSUM_BLOCK_BYTES):
        data[place] ^= 1
    store.put("f.lance", bytes(data))
    with pytest.raises(CorruptDataError):
        read_all(store, verify=Verify.SAMPLE)


def test_a_take_reads_and_verifies_few_blocks(remote, write):
    rng = np.random.default_rng(0)
    table = pa.table({"x": pa.array(rng.integers(0, 1 << 62, 500_000))})
    write(remote, table)
    reader = open_data_file(remote, "f.lance", size=remote.size("f.lance"))
    field = reader.schema.fields[0]
    reader.read([field], RowIndices(np.array([1])))
    for row in (77, 250_000, 499_999):
        remote.requests.clear()
        (found,) = reader.read([field], RowIndices(np.array([row])))
        assert found[0] == table["x"][row]
        fetched = sum(size for request in remote.requests for _, size in request)
        assert fetched <= 2 * CHECKSUM_BLOCK_BYTES
        remote.requests.clear()
        reader.read([field], RowIndices(np.array([row])))
        again = sum(size for request in remote.requests for _, size in request)
        assert again <= fetched


@settings(max_examples=20)
@given(st.integers(0, 1 << 32))
def test_flips_in_the_tail_of_tiny_files_are_seen(seed):
    from lancelet.file.open import create_data_file
    from lancelet.format.schema import Schema

    store = MemoryStore(f"tiny-{seed}")
    table = pa.table({"x": pa.array([1, 2, 3])})
    writer = create_data_file(store, "f.lance", Schema.from_arrow(table.schema))
    writer.write(table)
    writer.finish()
    data = bytearray(store.read("f.lance"))
    bit = int(np.random.default_rng(seed).integers(0, 8 * len(data)))
    data[bit // 8] ^= 1 << bit % 8
    store.put("f.lance", bytes(data))
    try:
        reader = open_data_file(store, "f.lance")
        (found,) = reader.read(reader.schema.fields, RowRange(0, reader.num_rows))
    except LanceletError:
        return
    assert found.to_pylist() == [1, 2, 3]

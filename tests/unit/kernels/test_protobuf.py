"""Protobuf by columns: native agrees with the definition, and both with the official runtime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.format.protos import file2_pb, table_pb

UINT64 = st.integers(0, 2**64 - 1)
PATHS = np.array([0, 1, 0, 4, 3, 4, 3, 0, 5, 0])


def bytes_of(data):
    return np.frombuffer(data, np.uint8)


@st.composite
def fragments(draw):
    proto = table_pb.DataFragment(id=draw(UINT64), physical_rows=draw(UINT64))
    for path in draw(st.lists(st.text(max_size=3), max_size=2)):
        proto.files.add(path=path, fields=[1, -2])
    if draw(st.booleans()):
        proto.deletion_file.num_deleted_rows = draw(UINT64)
        proto.deletion_file.read_version = draw(UINT64)
    if draw(st.booleans()):
        proto.inline_row_ids = draw(st.binary(max_size=200))
    return proto


MANIFESTS = st.builds(
    lambda parts, version, config: table_pb.Manifest(
        fragments=parts, version=version, config=config
    ),
    st.lists(fragments(), max_size=4),
    UINT64,
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@given(MANIFESTS)
def test_columns_are_what_the_official_runtime_reads(agree, manifest):
    data = bytes_of(manifest.SerializeToString())
    head, position, size = agree("find_parts", data, 2)
    assert len(head) == len(manifest.fragments)
    slices = ByteSlices(data, position, size)
    values, present = agree("read_varints", slices, PATHS)
    for index, proto in enumerate(manifest.fragments):
        body = proto.SerializeToString()
        assert data[position[index] :][: size[index]].tobytes() == body
        assert data[head[index]] == 0x12
        assert values[:3, index].tolist() == [
            proto.id,
            proto.physical_rows,
            proto.deletion_file.num_deleted_rows,
        ]
        assert present[3, index] == proto.HasField("deletion_file")
        assert present[4, index] == proto.HasField("inline_row_ids")
        assert values[4, index] == len(proto.inline_row_ids)


@given(MANIFESTS, st.integers(0, 2**32))
def test_damaged_messages_never_crash(agree, damage, manifest, seed):
    rng = np.random.default_rng(seed)
    data = damage(rng, bytes_of(manifest.SerializeToString()))
    found = agree("find_parts", data, 2)
    if isinstance(found, tuple):
        agree("read_varints", ByteSlices(data, found[1], found[2]), PATHS)
    agree("read_varints", ByteSlices.whole(data), PATHS)


@given(st.binary(max_size=40))
def test_arbitrary_bytes_never_crash(agree, data):
    agree("find_parts", bytes_of(data), 2)
    agree("read_varints", ByteSlices.whole(bytes_of(data)), PATHS)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\x80" * 11,
        b"\x00\x01",
        b"\x13",
        b"\x12\x05abc",
        b"\x09abc",
        b"\x0dab",
        b"\x08",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_malformed_messages_are_corrupt(agree, data):
    assert isinstance(agree("find_parts", bytes_of(data), 2), type)
    assert isinstance(agree("read_varints", ByteSlices.whole(bytes_of(data)), PATHS), type)


@pytest.mark.parametrize(("position", "size"), [(-1, 1), (0, -1), (0, 9), (1 << 62, 1 << 62)])
def test_slices_outside_of_the_source_are_corrupt(agree, position, size):
    slices = ByteSlices(bytes_of(b"\x08\x01"), np.array([position]), np.array([size]))
    assert isinstance(agree("read_varints", slices, PATHS), type)


def test_the_last_of_several_wins_and_other_wire_types_are_passed_over(agree):
    data = bytes_of(b"\x08\x01\x1a\x02\x20\x07\x08\x05\x0a\x01x\x1a\x02\x20\x09\x22\x00")
    values, present = agree("read_varints", ByteSlices.whole(data), PATHS)
    assert values[:, 0].tolist() == [5, 0, 9, 2, 0]
    assert present[:, 0].tolist() == [True, False, True, True, False]


@given(st.lists(MANIFESTS, max_size=4))
def test_parts_of_many_messages_are_those_of_each(agree, manifests):
    bodies = [manifest.SerializeToString() for manifest in manifests]
    size = np.array([len(body) for body in bodies], np.int64)
    data, position = bytes_of(b"".join(bodies)), np.cumsum(size) - size
    owner, part_position, part_size = agree("find_parts_in", ByteSlices(data, position, size), 2)
    found = [
        data[at:][:length].tobytes() for at, length in zip(part_position, part_size, strict=True)
    ]
    parts = [(i, part) for i, each in enumerate(manifests) for part in each.fragments]
    assert owner.tolist() == [index for index, _ in parts]
    assert found == [part.SerializeToString() for _, part in parts]


@given(st.lists(st.lists(UINT64, max_size=4), max_size=4))
def test_packed_numbers_are_what_the_official_runtime_reads(agree, each):
    bodies = [file2_pb.ColumnMetadata(buffer_sizes=numbers).SerializeToString() for numbers in each]
    size = np.array([len(body) for body in bodies], np.int64)
    whole = ByteSlices(bytes_of(b"".join(bodies)), np.cumsum(size) - size, size)
    owner, *where = agree("find_parts_in", whole, 4)
    counts, values = agree("read_packed", ByteSlices(whole.source, *where))
    assert owner.tolist() == [index for index, numbers in enumerate(each) if numbers]
    assert counts.tolist() == [len(numbers) for numbers in each if numbers]
    assert values.tolist() == [number for numbers in each for number in numbers]


@given(st.binary(max_size=30))
def test_damaged_messages_are_rejected_by_both(agree, data):
    whole = ByteSlices.whole(bytes_of(data))
    agree("find_parts_in", whole, 2)
    agree("read_packed", whole)


def test_packed_numbers_do_not_end_in_the_middle(agree):
    assert isinstance(agree("read_packed", ByteSlices.whole(bytes_of(b"\x07\x80"))), type)
    slices = ByteSlices(bytes_of(b"\x07"), np.array([0]), np.array([1 << 62]))
    assert isinstance(agree("read_packed", slices), type)
    assert isinstance(agree("find_parts_in", slices, 1), type)


@given(
    st.lists(st.tuples(st.binary(max_size=200), st.integers(0, 3)), max_size=5),
    st.lists(st.lists(st.integers(0, 2**62), max_size=3), min_size=20, max_size=20),
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), min_size=20, max_size=20),
)
def test_columns_are_joined_as_the_official_runtime_writes_them(agree, columns, places, numbers):
    encodings = [
        file2_pb.Encoding(direct=file2_pb.DirectEncoding(encoding=encoding))
        for encoding, _ in columns
    ]
    edges = np.cumsum([0, *(count for _, count in columns)], dtype=np.int64)
    pages = int(edges[-1])
    page_heads = np.arange(pages, dtype=np.int64) % max(len(columns), 1)
    expected = [
        file2_pb.ColumnMetadata(
            encoding=own,
            pages=[
                file2_pb.ColumnMetadata.Page(
                    buffer_offsets=places[page],
                    buffer_sizes=[place // 3 for place in places[page]],
                    length=numbers[page][0],
                    priority=numbers[page][1],
                    encoding=encodings[page_heads[page]],
                )
                for page in range(edges[column], edges[column + 1])
            ],
        ).SerializeToString()
        for column, own in enumerate(encodings)
    ]
    heads = [encoding.SerializeToString() for encoding in encodings]
    sizes = np.array([len(head) for head in heads], np.int64)
    flat = np.array([place for page in places[:pages] for place in page], np.int64)
    data, ends = agree(
        "join_pages",
        ByteSlices(bytes_of(b"".join(heads)), np.cumsum(sizes) - sizes, sizes),
        edges,
        np.arange(len(columns)),
        np.array([page_heads, *np.array(numbers[:pages], np.int64).reshape(-1, 2).T], np.int64),
        (np.cumsum([0, *map(len, places[:pages])], dtype=np.int64), flat, flat // 3),
    )
    assert data.tobytes() == b"".join(expected)
    assert np.diff(ends, prepend=0).tolist() == [len(each) for each in expected]

"""Footers round trip, and damaged ones are rejected with their values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteRanges
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.file.v2.footer import (
    ALIGNMENT,
    FOOTER_BYTES,
    Footer,
    padding_after,
    parse_footer,
    parse_table,
    parse_version,
    table_bytes,
)
from lancelet.format.version import FileVersion

VERSIONS = [version for version in FileVersion if version is not FileVersion.V0_1]


@st.composite
def footers(draw):
    metadata = draw(st.integers(0, 1 << 40))
    num_columns, num_buffers = draw(st.integers(0, 5000)), draw(st.integers(0, 50))
    column_table = metadata + draw(st.integers(0, 1 << 30))
    return Footer(
        column_metadata=metadata,
        column_table=column_table,
        buffer_table=column_table + 16 * num_columns,
        num_buffers=num_buffers,
        num_columns=num_columns,
        version=draw(st.sampled_from(VERSIONS)),
    )


def file_bytes_of(footer):
    return footer.buffer_table + 16 * footer.num_buffers + FOOTER_BYTES


@given(footers())
def test_a_footer_reads_back(footer):
    assert parse_footer(footer.to_bytes(), file_bytes=file_bytes_of(footer)) == footer


@given(footers(), st.integers(1, 1 << 20))
def test_a_footer_of_another_file_size_is_rejected(footer, change):
    for size in (file_bytes_of(footer) + change, file_bytes_of(footer) - change):
        with pytest.raises(CorruptDataError, match="truncated") as caught:
            parse_footer(footer.to_bytes(), file_bytes=size)
        assert caught.value.facts["file_bytes"] == size


@given(footers(), st.integers(0, 8 * FOOTER_BYTES - 1))
def test_no_flipped_bit_gives_another_footer_that_passes(footer, bit):
    data = bytearray(footer.to_bytes())
    data[bit // 8] ^= 1 << bit % 8
    try:
        found = parse_footer(bytes(data), file_bytes=file_bytes_of(footer))
    except (CorruptDataError, UnsupportedError):
        return
    # These fields alone leave the tables where they are: the version, which decides how pages
    # are parsed, and the start of the column metadata, of which the table has the places.
    changed = {name for name in Footer.__slots__ if getattr(found, name) != getattr(footer, name)}
    assert changed <= {"version", "column_metadata"}


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_shorter_than_a_version_is_rejected(size):
    with pytest.raises(CorruptDataError, match="too short"):
        parse_version(np.zeros(size, np.uint8), file_bytes=size)


def test_another_magic_number_is_rejected_with_its_value():
    with pytest.raises(CorruptDataError, match="magic") as caught:
        parse_footer(bytes(36) + b"PAR1", file_bytes=40)
    assert caught.value.facts["found"] == b"PAR1"


def test_an_unknown_version_names_itself():
    data = bytes(32) + (7).to_bytes(2, "little") + (1).to_bytes(2, "little") + b"LANC"
    with pytest.raises(UnsupportedError) as caught:
        parse_footer(data, file_bytes=40)
    assert caught.value.facts == {"major": 7, "minor": 1}


def test_both_numbers_of_2_0_are_accepted():
    footer = Footer(0, 0, 0, 0, 0, FileVersion.V2_0)
    data = bytearray(footer.to_bytes())
    assert data[32:36] == bytes([0, 0, 3, 0])
    data[32:36] = bytes([2, 0, 0, 0])
    assert parse_footer(bytes(data), file_bytes=40) == footer


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=20))
def test_a_table_reads_back(pairs):
    ranges = ByteRanges.of(*pairs)
    data = np.frombuffer(table_bytes(ranges.position, ranges.size), np.uint8)
    found = parse_table(data, limit=2000, content="thing")
    assert found.position.tolist() == ranges.position.tolist()
    assert found.size.tolist() == ranges.size.tolist()


@pytest.mark.parametrize(
    "row", [(11, 0), (0, 11), (10, 1), (1 << 63, 0), ((1 << 64) - 1, 2), (0, (1 << 64) - 1)]
)
def test_a_row_outside_of_the_file_is_rejected(row):
    data = np.array([0, 10, *row], np.uint64).view(np.uint8)
    with pytest.raises(CorruptDataError) as caught:
        parse_table(data, limit=10, content="thing")
    assert caught.value.facts == {
        "index": 1,
        "position": row[0],
        "size": row[1],
        "limit": 10,
    }


@given(st.integers(0, 1 << 40))
def test_padding_reaches_the_next_aligned_position(position):
    padding = padding_after(position)
    assert 0 <= padding < ALIGNMENT
    assert (position + padding) % ALIGNMENT == 0

"""A checksum trailer detects changed bytes and is ignored by other readers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.format.protos import transaction_pb
from lancelet.format.trailer import (
    TRAILER_BYTES,
    checksum_trailer,
    has_trailer,
    strip_trailer,
    with_trailer,
)


def whole(data):
    return np.frombuffer(data, np.uint8)


@given(st.binary(max_size=300))
def test_trailers_round_trip(data):
    assert len(with_trailer(data)) == len(data) + TRAILER_BYTES
    assert has_trailer(whole(with_trailer(data)))
    assert strip_trailer(whole(with_trailer(data))).tobytes() == data


@given(st.binary(max_size=300))
def test_bytes_without_a_seal_are_left_alone(data):
    assert strip_trailer(whole(data)).tobytes() == data


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_parts_are_sealed_as_if_they_were_one(first, second):
    assert first + second + checksum_trailer(whole(first), whole(second)) == with_trailer(
        first + second
    )


@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_flipped_bit_is_found(data, draw):
    damaged = bytearray(with_trailer(data))
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptDataError, match="does not match its checksum"):
        strip_trailer(whole(bytes(damaged)))


def test_a_reader_of_messages_skips_it():
    message = transaction_pb.Transaction(read_version=3, uuid="u")
    found = transaction_pb.Transaction.FromString(with_trailer(message.SerializeToString()))
    assert (found.read_version, found.uuid) == (3, "u")

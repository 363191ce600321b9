"""The Thrift binary protocol: writing and reading are inverses, and other bytes are refused."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.namespace.thrift import (
    Kind,
    ThriftError,
    read_message,
    read_struct,
    write_message,
    write_struct,
)

SCALARS = {
    Kind.BOOL: st.booleans(),
    Kind.BYTE: st.integers(-(2**7), 2**7 - 1),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.I16: st.integers(-(2**15), 2**15 - 1),
    Kind.I32: st.integers(-(2**31), 2**31 - 1),
    Kind.I64: st.integers(-(2**63), 2**63 - 1),
    Kind.STRING: st.text(st.characters(exclude_categories=["Cs"])),
}


def fields_of(kinds, contents):
    return st.sampled_from(kinds).flatmap(lambda kind: st.tuples(st.just(kind), contents(kind)))


def items_of(kind):
    return st.tuples(st.just(kind), st.lists(SCALARS[kind]))


SCALAR_FIELDS = fields_of(list(SCALARS), SCALARS.__getitem__)
LISTS = st.sampled_from(list(SCALARS)).flatmap(items_of)
MAPS = st.dictionaries(SCALARS[Kind.STRING], SCALARS[Kind.I64], min_size=1).map(
    lambda pairs: (Kind.MAP, (Kind.STRING, Kind.I64, pairs))
)
FIELDS = SCALAR_FIELDS | LISTS.map(lambda content: (Kind.LIST, content)) | MAPS
NUMBERS = st.integers(-(2**15), 2**15 - 1)
STRUCTS = st.recursive(
    st.dictionaries(NUMBERS, FIELDS),
    lambda inner: st.dictionaries(NUMBERS, inner.map(lambda fields: (Kind.STRUCT, fields))),
    max_leaves=8,
)


@given(STRUCTS)
def test_reading_undoes_writing(fields):
    assert read_struct(io.BytesIO(write_struct(fields))) == fields


@given(STRUCTS, st.data())
def test_a_message_that_was_cut_off_is_refused(fields, data):
    message = write_message(1, "call", 7, fields)
    assert read_message(io.BytesIO(message)) == (1, "call", 7, fields)
    end = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(EOFError):
        read_message(io.BytesIO(message[:end]))


@given(st.binary())
def test_other_bytes_are_read_or_refused(data):
    with contextlib.suppress(EOFError, ThriftError):
        read_struct(io.BytesIO(data))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b\x00\x01\x7f\xff\xff\xff",  # a string of 2 GB
        b"\x0b\x00\x01\xff\xff\xff\xff",  # a string of a negative size
        b"\x0c\x00\x01" * 100,  # 100 structs within each other
        b"\x05\x00\x01",  # an unknown kind
        b"\x0f\x00\x01\x07\x00\x00\x00\x01",  # a list of an unknown kind
    ],
)
def test_hostile_sizes_are_refused(data):
    with pytest.raises(ThriftError):
        read_struct(io.BytesIO(data))

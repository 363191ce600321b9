"""Values buffered for a page: one array, copied only if the buffers are separate."""

import pyarrow as pa
import pytest

from lancelet.file.v2.pending import concat_values
from lancelet.format.schema import Schema

VALUES = {
    "int": pa.array([1, None, 3, 4, 5, None, 7]),
    "bool": pa.array([True, None, False, True, True, False, None]),
    "string": pa.array(["a", "", None, "dd", "e", "ff", None]),
    "decimal": pa.array([1, None, 3, 4, 5, 6, 7], pa.decimal128(5, 0)),
    "list": pa.array([[1], None, [], [2, 3], [4], [5], []]),
    "struct": pa.array([{"x": 1}, None, {"x": None}, {"x": 4}, {"x": 5}, {"x": 6}, None]),
    "dictionary": pa.array(["a", "b", None, "a", "b", "a", "c"]).dictionary_encode(),
    "null": pa.nulls(7),
}


def field_of(array):
    return Schema.from_arrow(pa.schema([pa.field("x", array.type)])).fields[0]


@pytest.mark.parametrize("kind", list(VALUES))
@pytest.mark.parametrize("start", [0, 2])
def test_slices_of_one_array_are_that_array(kind, start):
    array = VALUES[kind].slice(start)
    parts = [array.slice(0, 2), array.slice(2, 1), array.slice(3)]
    found = concat_values(parts, field_of(array))
    found.validate(full=True)
    assert found.equals(array)
    if kind in ("int", "bool", "string", "decimal"):
        assert found.buffers()[-1].address == array.buffers()[-1].address


@pytest.mark.parametrize("kind", list(VALUES))
def test_separate_or_unordered_buffers_are_copied(kind):
    array = VALUES[kind]
    copy = pa.concat_arrays([array, array]).slice(0, len(array))
    for parts in ([array, copy], [array.slice(3), array.slice(0, 3)], [array, array]):
        found = concat_values(parts, field_of(array))
        assert found.to_pylist() == [value for part in parts for value in part.to_pylist()]


def test_nulls_of_some_parts_are_preserved():
    values = pa.array([1, 2, 3, 4]).buffers()[1]

    def part(validity, offset):
        bits = None if validity is None else pa.py_buffer(validity)
        return pa.Array.from_buffers(pa.int64(), 2, [bits, values], offset=offset)

    field = field_of(pa.array([1]))
    assert concat_values([part(None, 0), part(b"\x07", 2)], field).to_pylist() == [1, 2, 3, None]
    assert concat_values([part(b"\x0e", 0), part(None, 2)], field).to_pylist() == [None, 2, 3, 4]

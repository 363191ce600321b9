"""Every kind of index, compared with an evaluation row by row.

A result has every matching row, and no other if the index is exact. Random queries of random values
over two fragments are run on a new segment, on one merged with more rows after a fragment was
dropped, and on one with moved rows.
"""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.index.base import IndexedRows, IndexTypeError, Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import Contains, HasAll, HasAny, Interval, IsNull, OneOf, StartsWith
from lancelet.index.registry import SCALAR_KINDS, kind_by_details_type, kind_by_name
from lancelet.index.scalar.fm.kind import FmSegment
from lancelet.io.memory import MemoryStore
from lancelet.rowids.address import NO_ADDRESS, fragments_of

TYPES = {
    "integers": (pa.int16(), st.integers(-4, 4)),
    "unsigned": (pa.uint64(), st.integers(2**63 - 2, 2**63 + 2)),
    "floats": (
        pa.float32(),
        st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan]),
    ),
    "texts": (pa.string(), st.sampled_from(["", "a", "ab", "abc", "b", "é"])),
    "bytes": (pa.large_binary(), st.sampled_from([b"", b"a", b"a\xff", b"a\xff\xff", b"b"])),
    "times": (pa.timestamp("ms", tz="UTC"), st.integers(-3, 3)),
    "flags": (pa.bool_(), st.booleans()),
    "decimals": (pa.decimal128(5, 1), st.integers(-3, 3)),
    "fixed": (pa.binary(2), st.sampled_from([b"aa", b"ab", b"\xff\xff"])),
    "lists": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 3), max_size=3)),
    "labels": (pa.large_list(pa.string()), st.lists(st.sampled_from(["x", "y", "z"]), max_size=3)),
}


def accepts(kind, data_type):
    if kind.name == "RTREE":  # whose values are geometries; it has tests of its own
        return False
    try:
        kind.check_type(data_type, "x")
    except IndexTypeError:
        return False
    return True


CASES = [
    (kind.name, name)
    for kind in SCALAR_KINDS
    for name, (data_type, _) in TYPES.items()
    if accepts(kind, data_type)
]


def folder():
    return SegmentFolder(MemoryStore(), "_indices/a")


def addresses(first, count):
    """Half of the rows in one fragment and half in the next, with gaps where rows were deleted."""
    half = count // 2
    return np.array(
        [first << 32 | 2 * i for i in range(half)]
        + [(first + 1) << 32 | 3 * i for i in range(count - half)],
        np.uint64,
    )


def matches(query, item):
    """Whether a value answers a question, by plain Python; floats as filters compare them."""
    if isinstance(query, IsNull):
        return item is None
    if item is None:
        return False
    match query:
        case OneOf(values):
            return total(item) in [total(value) for value in values.to_pylist()]
        case Interval(lower, upper, with_lower, with_upper):
            low = (
                lower is None
                or total(lower.as_py()) < total(item)
                or (with_lower and total(lower.as_py()) == total(item))
            )
            high = (
                upper is None
                or total(item) < total(upper.as_py())
                or (with_upper and total(upper.as_py()) == total(item))
            )
            return low and high
        case StartsWith(prefix):
            return (item.encode() if isinstance(item, str) else item).startswith(prefix)
        case Contains(text):
            return isinstance(item, str) and text in item
        case HasAny(values):
            return any(value in item for value in values.to_pylist())
        case HasAll(values):
            return all(value in item for value in values.to_pylist())


def total(item):
    if isinstance(item, float):
        return (True, 0.0) if math.isnan(item) else (False, item)
    return item


@st.composite
def questions(draw, data_type, items):
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        element = data_type.value_type
        wanted = draw(st.lists(items, min_size=1, max_size=3))
        elements = [each for some in wanted for each in some if each is not None] or [
            0 if pa.types.is_integer(element) else "x"
        ]
        return draw(st.sampled_from([HasAny, HasAll]))(pa.array(elements, element))
    choice = draw(st.integers(0, 3))
    if choice == 0:
        return IsNull()
    if choice == 1:
        return OneOf(pa.array(draw(st.lists(items, min_size=1, max_size=4)), data_type))
    if choice == 2 and (pa.types.is_string(data_type) or pa.types.is_large_binary(data_type)):
        prefix = draw(items)
        return StartsWith(prefix.encode() if isinstance(prefix, str) else prefix)
    if choice == 3 and pa.types.is_string(data_type) and draw(st.booleans()):
        return Contains(draw(items))
    bound = st.none() | items.map(lambda item: pa.array([item], data_type)[0])
    return Interval(draw(bound), draw(bound), draw(st.booleans()), draw(st.booleans()))


def check(segment, query, values, numbers):
    if segment.estimate(query) is None:
        return
    found = segment.search(query)
    rows = set(found.rows.addresses({}).tolist())
    expected = {
        number
        for number, item in zip(numbers.tolist(), values.to_pylist(), strict=True)
        if matches(query, item)
    }
    assert expected <= rows
    if found.is_exact:
        assert rows == expected
    nulls = segment.nulls()
    if nulls is None:
        assert isinstance(segment, FmSegment), "only this kind does not know them"
        return
    assert set(nulls.addresses({}).tolist()) == set(
        numbers[values.is_null().to_numpy(False)].tolist()
    )


@pytest.mark.parametrize(("kind", "name"), CASES)
@settings(max_examples=max(10, settings.default.max_examples // 2))  # there are many cases
@given(data=st.data())
def test_answers_are_complete_through_the_whole_life(kind, name, data):
    kind = kind_by_name(kind)
    data_type, items = TYPES[name]
    drawn = data.draw(st.lists(st.none() | items, max_size=30))
    values = pa.array(drawn, data_type)
    numbers = addresses(0, len(values))
    query = data.draw(questions(data_type, items))
    parameters = Parameters(
        {"rows_per_zone": 4, "number_of_items": 4}
        if "ZONE" in kind.name or "BLOOM" in kind.name
        else {}
    )

    place = folder()
    details = kind.train(IndexedRows(data_type, [(values, numbers)]), place, parameters)
    segment = kind.open(place, details)
    check(segment, query, values, numbers)

    more = pa.array(data.draw(st.lists(st.none() | items, max_size=10)), data_type)
    new_numbers = addresses(5, len(more))
    kept = fragments_of(numbers) == 1
    place = folder()
    details = kind.merge(
        [segment],
        [lambda rows: np.where(fragments_of(rows) == 1, rows, NO_ADDRESS)],
        IndexedRows(data_type, [(more, new_numbers)]),
        place,
    )
    check(
        kind.open(place, details),
        query,
        pa.concat_arrays([values.filter(pa.array(kept)), more]),
        np.concatenate([numbers[kept], new_numbers]),
    )

    def move(rows):
        return np.where(rows % 4 == 0, NO_ADDRESS, rows + np.uint64(9 << 32))

    place = folder()
    details = kind.remap(segment, move, place)
    if details is not None:
        moved = move(numbers)
        left = moved != NO_ADDRESS
        check(kind.open(place, details), query, values.filter(pa.array(left)), moved[left])


def test_every_kind_has_files_that_are_listed():
    values, numbers = pa.array([1, 2, None]), addresses(0, 3)
    for kind in SCALAR_KINDS:
        if accepts(kind, values.type):
            place = folder()
            kind.train(IndexedRows(values.type, [(values, numbers)]), place, Parameters())
            assert place.written
            assert all(
                place.store.size(f"_indices/a/{file.path}") == file.size_bytes
                for file in place.written
            )
            assert kind_by_details_type(kind.type_url.upper()) is kind

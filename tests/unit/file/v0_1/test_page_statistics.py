"""Page statistics: stored values, and their use for pruning."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings.base import RowRange
from lancelet.file.open import open_data_file
from lancelet.file.v0_1 import LegacyFileWriter, LegacyWriterOptions
from lancelet.file.v0_1.bounds import bounds_of_batches, is_covered
from lancelet.format.schema import Schema
from lancelet.io.memory import MemoryStore

PATH = "a.lance"


def written(array, *, rows=3, nullable=True):
    store = MemoryStore()
    schema = pa.schema([pa.field("x", array.type, nullable)])
    writer = LegacyFileWriter(
        store.open_writer(PATH),
        Schema.from_arrow(schema),
        LegacyWriterOptions(max_rows_per_group=rows),
    )
    writer.write(pa.table({"x": array}, schema=schema))
    writer.finish()
    return open_data_file(store, PATH)


def bounds_of_batch(array):
    """Return the least and the greatest value of an array that is one batch."""
    bounds = bounds_of_batches(array, len(array))
    return pa.concat_arrays([bounds.minimum, bounds.maximum])


def zones_of(array, **options):
    reader = written(array, **options)
    return reader.zone_statistics(reader.schema.fields[0])


@pytest.mark.parametrize(
    ("array", "bounds"),
    [
        (pa.array([3, None, -1], pa.int8()), [-1, 3]),
        (pa.array([None, None], pa.int16()), [-32768, 32767]),
        (pa.array([None], pa.uint32()), [0, 2**32 - 1]),
        (pa.array([1.5, math.nan, None]), [1.5, 1.5]),
        (pa.array([math.nan, None]), [-math.inf, math.inf]),
        (pa.array([None], pa.float32()), [-math.inf, math.inf]),
        (pa.array([None, True]), [True, True]),
        (pa.array([None], pa.bool_()), [False, True]),
        (pa.array([Decimal("1.5"), Decimal("-2.5")]), [Decimal("-2.5"), Decimal("1.5")]),
        (pa.array([5, 3], pa.date32()), [dt.date(1970, 1, 4), dt.date(1970, 1, 6)]),
        (pa.array(["b", None, "a"]), ["a", "b"]),
        (pa.array([None], pa.large_string()), [None, None]),
        (pa.array([b"b", b""]), [b"", b"b"]),
    ],
)
def test_bounds_are_least_and_greatest_without_nulls_and_nan(array, bounds) -> None:
    found = bounds_of_batch(array)
    assert found.type == array.type
    assert found.to_pylist() == bounds


def test_zeros_bound_by_their_sign() -> None:
    for values in ([0.0, 0.0], [-0.0, -0.0]):
        least, greatest = bounds_of_batch(pa.array(values)).to_pylist()
        assert (math.copysign(1, least), math.copysign(1, greatest)) == (-1, 1)


@pytest.mark.parametrize(
    ("text", "least", "greatest"),
    [
        ("a" * 64, "a" * 64, "a" * 64),
        ("a" * 65, "a" * 64, "a" * 63 + "b"),
        # The two bytes of the last character do not fit into 64.
        ("a" * 63 + "ü", "a" * 63, "a" * 62 + "b"),
        ("a" * 62 + "ü!", "a" * 62 + "ü", "a" * 62 + "ý"),
        # No byte of the greatest character can be raised, so the one before is.
        ("a" * 60 + "\U0010ffff!", "a" * 60 + "\U0010ffff", "a" * 59 + "b\U0010ffff"),
        ("\U0010ffff" * 17, "\U0010ffff" * 16, None),
    ],
)
def test_long_text_is_cut_between_characters(text, least, greatest) -> None:
    assert bounds_of_batch(pa.array([text])).to_pylist() == [least, greatest]


@pytest.mark.parametrize(
    ("data", "greatest"),
    [
        (b"a" * 65, b"a" * 63 + b"b"),
        (b"a" * 63 + b"\xff\xff", b"a" * 62 + b"b\x00"),
        (b"\xff" * 65, None),
    ],
)
def test_long_bytes_are_cut_and_raised(data, greatest) -> None:
    assert bounds_of_batch(pa.array([data])).to_pylist() == [data[:64], greatest]


long_text = st.text(st.sampled_from("aü€\U0001f600\U0010ffff"), max_size=70)


@given(st.lists(long_text | st.none(), min_size=1, max_size=5))
def test_text_is_within_its_bounds(values) -> None:
    least, greatest = bounds_of_batch(pa.array(values, pa.string())).to_pylist()
    for value in (value.encode() for value in values if value is not None):
        assert least.encode() <= value
        assert greatest is None or value <= greatest.encode()


COVERED = {
    pa.int32(): st.integers(-5, 5),
    pa.uint8(): st.integers(0, 9),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, math.nan]),
    pa.bool_(): st.booleans(),
    pa.date64(): st.integers(-3, 3).map(lambda days: days * 86_400_000),
    pa.decimal128(5, 1): st.integers(-99, 99).map(lambda v: Decimal(v).scaleb(-1)),
    pa.string(): long_text,
    pa.large_binary(): st.binary(max_size=70),
}


@given(data=st.data(), data_type=st.sampled_from(list(COVERED)), rows=st.integers(1, 4))
def test_zones_are_valid_for_read_values(data, data_type, rows) -> None:
    """Goal: pruning by zones never loses a row, although nulls are read as other values."""
    values = data.draw(st.lists(COVERED[data_type] | st.none(), min_size=1, max_size=12))
    reader = written(pa.array(values, data_type), rows=rows)
    zones = reader.zone_statistics(reader.schema.fields[0])
    (read,) = reader.read(reader.schema.fields, RowRange(0, reader.num_rows))
    assert zones.num_rows == len(read)
    for zone, start in enumerate(range(0, len(read), zones.rows_per_zone)):
        part = read.slice(start, zones.rows_per_zone)
        if zones.null_count[zone] == 0:
            assert part.null_count == 0
        if zones.null_count[zone] == len(part):
            assert part.null_count == len(part)
        for value in part.drop_null():
            if pa.types.is_floating(data_type) and math.isnan(value.as_py()):
                assert zones.nan_count[zone] > 0
                continue
            for bound, is_bound in (
                (zones.minimum, pc.less_equal),
                (zones.maximum, pc.greater_equal),
            ):
                assert not bound[zone].is_valid or is_bound(bound[zone], value).as_py()


def test_numbers_are_bounded_when_nothing_is_null() -> None:
    zones = zones_of(pa.array([3, 1, 2, 7, 9, None, 4]))
    assert zones.rows_per_zone == 3
    assert zones.minimum.to_pylist() == [1, None, 4]
    assert zones.maximum.to_pylist() == [3, None, 4]
    assert zones.null_count.tolist() == [0, 0, 0]
    assert zones.nan_count is None


def test_text_keeps_its_nulls_and_bounds() -> None:
    zones = zones_of(pa.array(["b", "a", "c", "x", None, "y", "", "q", "r"]))
    assert zones.null_count.tolist() == [0, 1, 1]
    assert zones.maximum.to_pylist() == ["c", "y", "r"]
    full = zones_of(pa.array(["", "a", ""]), nullable=False)
    assert full.null_count.tolist() == [0]


def test_fields_of_structs_are_covered_and_items_of_lists_are_not() -> None:
    kind = pa.struct([("a", pa.int8()), ("l", pa.list_(pa.int8())), ("t", pa.time32("s"))])
    reader = written(pa.array([{"a": 3, "l": [1], "t": 0}], kind))
    struct = reader.schema.fields[0]
    a, items, time = struct.children
    assert reader.zone_statistics(a).minimum.to_pylist() == [3]
    for other in (struct, items, items.children[0], time):
        assert reader.zone_statistics(other) is None


def test_batches_that_are_no_zones_have_no_statistics() -> None:
    store = MemoryStore()
    schema = Schema.from_arrow(pa.schema([("x", pa.int8())]))
    writer = LegacyFileWriter(
        store.open_writer(PATH), schema, LegacyWriterOptions(batch_lengths=[1, 2])
    )
    writer.write(pa.table({"x": pa.array([1, 2, 3], pa.int8())}))
    writer.finish()
    reader = open_data_file(store, PATH)
    assert reader.zone_statistics(reader.schema.fields[0]) is None


def test_types_without_statistics_are_known() -> None:
    for data_type in (pa.float16(), pa.timestamp("s"), pa.binary(3), pa.decimal256(5), pa.null()):
        assert not is_covered(data_type)


def test_statistics_are_read_once() -> None:
    reader = written(pa.array(np.arange(10)))
    requests = []
    fetch = reader._fetch
    reader._fetch = lambda ranges: requests.append(len(ranges)) or fetch(ranges)
    for _ in range(3):
        reader.zone_statistics(reader.schema.fields[0])
    assert len(requests) == 2

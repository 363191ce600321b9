"""Zone statistics: bounds hold for every value, for all splits of a column.

The reference is plain Python over the values of each zone.
"""

import itertools
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.encodings.base import RowRange
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.column_plan import plan_columns
from lancelet.file.v2.writer import WriterOptions
from lancelet.file.zones import (
    bounds_of,
    bounds_of_each,
    concat_bounds,
    field_at,
    join_bounds,
    merge_bounds,
    values_at,
    zoned_fields,
)
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore
from tests.kit.strategies import LEAVES, Distribution, distributions, random_array

ORDERED = [data_type for data_type in LEAVES if not pa.types.is_null(data_type)]
TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def field_of(data_type, **options):
    return Field.from_arrow(pa.field("x", data_type, **options), itertools.count())


def python_values(array):
    """Return values that Python orders as Arrow does: exact numbers, bytes for strings."""
    data_type = array.type
    if pa.types.is_temporal(data_type):
        array = array.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
    values = array.to_pylist()
    return [value.encode() if isinstance(value, str) else value for value in values]


def check_zone(zone, bounds, place, data_type):
    values = python_values(zone)
    known = [value for value in values if value is not None]
    numbers = [value for value in known if not (isinstance(value, float) and math.isnan(value))]
    assert bounds.null_count[place] == len(values) - len(known)
    assert bounds.nan_count[place] == len(known) - len(numbers)
    (low,) = python_values(bounds.minimum[place : place + 1])
    (high,) = python_values(bounds.maximum[place : place + 1])
    if not numbers:
        assert (low, high) == (None, None)
    elif data_type in TEXT:
        assert low <= min(numbers)
        assert len(low) <= 64
        assert high is None or (high >= max(numbers) and len(high) <= 67)
    else:
        assert (low, high) == (min(numbers), max(numbers))
        if low == 0 and isinstance(low, float):
            assert math.copysign(1, low) == -1
        if high == 0 and isinstance(high, float):
            assert math.copysign(1, high) == 1


@pytest.mark.parametrize("data_type", ORDERED, ids=str)
@settings(max_examples=8)
@given(
    spread=distributions(),
    seed=st.integers(0, 1 << 32),
    cuts=st.lists(st.integers(0, 250), max_size=5),
    zone_rows=st.sampled_from([1, 7, 100]),
)
def test_bounds_are_valid_for_any_split_of_a_column(data_type, spread, seed, cuts, zone_rows):
    array = random_array(np.random.default_rng(seed), data_type, 250, spread)
    assert list(zoned_fields(field_of(data_type))) == [()]
    places = sorted({0, 250, *cuts})
    parts = [
        bounds_of(array[start:stop], start, zone_rows=zone_rows)
        for start, stop in itertools.pairwise(places)
    ]
    merged = merge_bounds(parts)
    assert merged.minimum.type == merged.maximum.type == data_type
    assert len(merged.null_count) == -(-250 // zone_rows)
    for place in range(len(merged.null_count)):
        zone = array[place * zone_rows : (place + 1) * zone_rows]
        check_zone(zone, merged, place, data_type)


@pytest.mark.parametrize("data_type", ORDERED, ids=str)
@settings(max_examples=8)
@given(
    spread=distributions(),
    seed=st.integers(0, 1 << 32),
    count=st.integers(1, 4),
    first_row=st.sampled_from([0, 7, 14, 3]),
    rows=st.sampled_from([1, 6, 7, 20, 21]),
)
def test_bounds_of_columns_together_are_those_of_each(
    data_type, spread, seed, count, first_row, rows
):
    random = np.random.default_rng(seed)
    arrays = [random_array(random, data_type, rows + 2, spread)[2:] for _ in range(count)]
    found = bounds_of_each(arrays, [first_row] * count, zone_rows=7)
    for array, bounds in zip(arrays, found, strict=True):
        zones = bounds_of(array, first_row, zone_rows=7)
        for each, known in ((bounds.zones, zones), (bounds.pages, join_bounds(zones))):
            assert each.first_zone == known.first_zone
            assert each.null_count.tolist() == known.null_count.tolist()
            assert each.nan_count.tolist() == known.nan_count.tolist()
            assert each.minimum.equals(known.minimum)
            assert each.maximum.equals(known.maximum)
    check_zone(arrays[-1], found[-1].pages, 0, data_type)


@pytest.mark.parametrize(
    "data_type",
    [
        pa.null(),
        pa.list_(pa.int32()),
        pa.list_(pa.int32(), 3),
        pa.dictionary(pa.int8(), pa.string()),
        pa.map_(pa.string(), pa.int8()),
        pa.json_(pa.string()),
    ],
    ids=str,
)
def test_values_without_an_order_have_no_bounds(data_type):
    assert list(zoned_fields(field_of(data_type))) == []


def test_leaves_of_structs_are_null_where_the_struct_is():
    data_type = pa.struct(
        [("a", pa.int8()), ("b", pa.struct([("c", pa.list_(pa.int8())), ("d", pa.string())]))]
    )
    field = field_of(data_type)
    paths = list(zoned_fields(field))
    assert [field_at(field, path).name for path in paths] == ["a", "d"]
    array = pa.array([{"a": 1, "b": None}, None, {"a": 3, "b": {"c": [], "d": "x"}}], data_type)
    assert values_at(array, paths[0]).to_pylist() == [1, None, 3]
    assert values_at(array, paths[1]).to_pylist() == [None, None, "x"]


def test_blobs_have_no_bounds():
    assert (
        list(zoned_fields(field_of(pa.large_binary(), metadata={"lance-encoding:blob": "true"})))
        == []
    )


@pytest.mark.parametrize(
    ("value", "cut"),
    [
        ("a" * 64, "a" * 64),
        ("a" * 65, "a" * 63 + "b"),
        ("a" * 63 + "é", "a" * 62 + "b"),
        ("\U0010ffff" * 20, None),
        ("a" + "\U0010ffff" * 20, "b"),
        ("a" * 61 + "\ud7ff" + "x", "a" * 61 + "\ue000"),
    ],
)
def test_long_strings_are_cut_and_counted_up(value, cut):
    bounds = bounds_of(pa.array([value]), 0, zone_rows=10)
    assert bounds.maximum.to_pylist() == [cut]
    assert cut is None or cut.encode() >= value.encode()


@pytest.mark.parametrize("data_type", TEXT, ids=str)
@given(
    texts=st.lists(st.none() | st.text("aé漢😀\U0010ffff", max_size=40), min_size=1, max_size=9),
    repeats=st.integers(1, 300),
)
def test_bounds_of_very_long_strings_are_those_of_whole_strings(data_type, texts, repeats):
    long = [None if text is None else text * repeats for text in [*texts, "x" * 2000]]
    array = pa.array(long, pa.string()).cast(data_type)
    bounds = bounds_of(array, 0, zone_rows=4)
    for place in range(len(bounds.null_count)):
        check_zone(array[place * 4 : place * 4 + 4], bounds, place, data_type)
    # The same bounds as when strings are compared as a whole.
    whole = merge_bounds(
        [bounds_of(array[at : at + 1], at, zone_rows=4) for at in range(len(long))]
    )
    assert bounds.minimum.equals(whole.minimum)


# --- in files ---------------------------------------------------------------------------------


def statistics_of(table, **options):
    store = MemoryStore("zones")
    schema = Schema.from_arrow(table.schema)
    writer = create_data_file(store, "f.lance", schema, WriterOptions(**options))
    for batch in table.to_batches(max_chunksize=777):
        writer.write(batch)
    writer.finish()
    return open_data_file(store, "f.lance")


@pytest.mark.parametrize("version", [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2])
@pytest.mark.parametrize("checksums", [False, True])
def test_a_file_keeps_statistics_of_all_its_fields(version, checksums):
    rng = np.random.default_rng(1)
    spread = Distribution(1 << 16, False, 20, 3, 0.1)
    columns = {str(data_type): random_array(rng, data_type, 2500, spread) for data_type in ORDERED}
    pairs = [(value, name) for value, name in zip(range(2500), map(str, range(2500)), strict=True)]
    columns["struct"] = pa.array([{"a": a, "b": b} for a, b in pairs])
    columns["list"] = pa.array([[1]] * 2500)
    table = pa.table({f"c{place}": column for place, column in enumerate(columns.values())})
    reader = statistics_of(
        table, version=version, checksums=checksums, zone_rows=1000, max_page_bytes=4000
    )
    for field, column in zip(reader.schema.fields, columns.values(), strict=True):
        for path in zoned_fields(field):
            leaf = field_at(field, path)
            found = reader.zone_statistics(leaf)
            values = values_at(column, path)
            assert (found.rows_per_zone, found.num_rows, len(found)) == (1000, 2500, 3)
            is_float = pa.types.is_floating(values.type)
            assert (found.nan_count is not None) == is_float
            counts = np.zeros(3, np.int64) if found.nan_count is None else found.nan_count
            for place in range(3):
                zone = values[place * 1000 : (place + 1) * 1000]
                check_zone(
                    zone,
                    type(
                        "",
                        (),
                        {
                            "null_count": found.null_count,
                            "nan_count": counts,
                            "minimum": found.minimum,
                            "maximum": found.maximum,
                        },
                    ),
                    place,
                    values.type,
                )
    assert reader.zone_statistics(reader.schema.fields[-1]) is None
    # Reading the rows does not notice.
    assert reader.read(reader.schema.fields[:1], RowRange(0, 2500))[0].equals(columns["bool"])


@pytest.mark.parametrize("version", [FileVersion.V2_0, FileVersion.V2_2])
@pytest.mark.parametrize("data_type", ORDERED, ids=str)
@settings(max_examples=5)
@given(spread=distributions(), seed=st.integers(0, 1 << 32), page_bytes=st.integers(100, 4000))
def test_pages_have_bounds_that_hold_for_their_rows(data_type, version, spread, seed, page_bytes):
    array = random_array(np.random.default_rng(seed), data_type, 400, spread)
    inside = pa.StructArray.from_arrays([array], ["a"])
    reader = statistics_of(
        pa.table({"x": array, "s": inside}),
        version=version,
        zone_rows=90,
        data_cache_bytes=page_bytes,
    )
    for leaf in (reader.schema.fields[0], reader.schema.fields[1].children[0]):
        found = reader.page_statistics(leaf)
        assert reader.page_statistics(leaf) is found
        pages = reader.column(reader.field_ids.index(leaf.id)).pages
        assert found.edges.tolist() == [*(page.first_row for page in pages), 400]
        counts = replace(found, nan_count=0 * found.null_count)
        if found.nan_count is not None:
            counts = found
        for place, (start, stop) in enumerate(itertools.pairwise(found.edges.tolist())):
            check_zone(array[start:stop], counts, place, data_type)


def test_a_page_that_was_cut_in_two_has_bounds_for_each_half():
    lists = [[]] * 70_000 + [[1]] + [[]] * 70_000
    table = pa.table({"x": pa.array([{"l": a, "n": n} for n, a in enumerate(lists)])})
    reader = statistics_of(table)
    rows, numbers = reader.schema.fields[0].children
    assert reader.page_statistics(rows) is None
    found = reader.page_statistics(numbers)
    assert found.minimum.to_pylist() == found.edges[:-1].tolist()
    assert found.maximum.to_pylist() == (found.edges[1:] - 1).tolist()


def test_a_largest_value_that_is_unknown_somewhere_is_unknown_for_all():
    highest = "\U0010ffff" * 20
    for values in (["b", highest], [highest, "b"], [highest, None]):
        parts = [bounds_of(pa.array([value], pa.string()), 0, zone_rows=9) for value in values]
        assert merge_bounds(parts).maximum.to_pylist() == [None]
        assert join_bounds(concat_bounds(parts)).maximum.to_pylist() == [None]
    parts = [bounds_of(pa.array([value], pa.string()), 0, zone_rows=9) for value in ("b", None)]
    assert merge_bounds(parts).maximum.to_pylist() == ["b"]


def test_a_file_of_less_than_a_zone_keeps_none():
    reader = statistics_of(pa.table({"x": pa.array(range(99))}), zone_rows=100)
    assert reader.zone_statistics(reader.schema.fields[0]) is None
    assert len(reader.metadata.buffers) == 2


def test_statistics_can_be_turned_off():
    reader = statistics_of(pa.table({"x": pa.array(range(9999))}), zone_rows=None)
    assert reader.zone_statistics(reader.schema.fields[0]) is None


def test_a_buffer_of_another_writer_is_not_read_as_statistics():
    store = MemoryStore("zones")
    table = pa.table({"x": pa.array([1, 2])})
    writer = create_data_file(store, "f.lance", Schema.from_arrow(table.schema), WriterOptions())
    writer.write(table)
    writer.add_global_buffer(b"")
    writer.add_global_buffer(b"y" * 500)
    writer.finish()
    reader = open_data_file(store, "f.lance")
    assert reader.zone_statistics(reader.schema.fields[0]) is None
    assert reader.global_buffer(2).tobytes() == b"y" * 500


def test_threads_open_the_statistics_of_a_file_once(store, write):
    write(store, pa.table({"x": np.arange(1000)}), zone_rows=100)
    reader = open_data_file(store, "f.lance")
    real, opened, all_there = reader._open_zones, [], threading.Barrier(4, timeout=60)

    def open_slowly(file):
        opened.append(file)
        time.sleep(0.05)
        return real(file)

    def look(_):
        all_there.wait()
        return reader.zone_statistics(reader.schema.fields[0])

    reader._open_zones = open_slowly
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(look, range(4)))
    assert len(opened) == 1
    assert all(each is not None for each in found)


def test_derived_statistics_are_computed_once():
    def write(rows):
        table = pa.table({"x": pa.array(range(rows)), "y": pa.array(["a"] * rows)})
        store = MemoryStore()
        schema = Schema.from_arrow(table.schema)
        options = WriterOptions(zone_rows=10)
        writer = create_data_file(store, "x.lance", schema, options)
        writer.write(table)
        writer.finish()

    write(20)
    before = plan_columns.cache_info().misses
    for rows in (30, 40, 50):
        write(rows)
    assert plan_columns.cache_info().misses == before

"""Hypothesis strategies for Arrow types, arrays and tables that the format can store.

A strategy draws the shape of a table: its types and their depth, the number of rows and chunks, and
the distribution of values and nulls. The values come from a generator with a drawn seed, so a table
of thousands of rows is one cheap draw, and failures still shrink well.

    table_of(draw)   types           int16, list<struct<string, decimal>>
                     distribution    few distinct values, a third of them null
                     layout          3 chunks, the second a slice of a longer array

Arrays use the full freedom of Arrow: nulls have values or whole lists below them, slices start
within a byte of a bitmap, offsets do not start at zero, and buffers are unaligned.
"""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lancelet.file.storage import cast_values
from lancelet.format.version import FileVersion
from lancelet.values import dataclass

Generator: TypeAlias = np.random.Generator

INTEGERS: Final = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
)
FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
TEMPORAL: Final = (
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.timestamp("s"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "+05:30"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.duration("s"),
    pa.duration("ms"),
    pa.duration("us"),
    pa.duration("ns"),
)
DECIMALS: Final = (
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
    pa.decimal128(10, -3),
    pa.decimal256(50, 4),
)
VARIABLE: Final = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
VIEWS: Final = (pa.string_view(), pa.binary_view())
FIXED_BINARY: Final = (pa.binary(1), pa.binary(3), pa.binary(16))
EXTENSIONS: Final = (pa.uuid(), pa.fixed_shape_tensor(pa.float32(), [2, 2]))
DICTIONARIES: Final = (
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.large_string()),
    pa.dictionary(pa.int32(), pa.int64()),
    pa.dictionary(pa.int64(), pa.binary()),
)
LIST_ITEMS: Final = (pa.bool_(), pa.int8(), pa.int32(), pa.uint64(), pa.float16(), pa.float32())

LEAVES: Final = (
    pa.null(),
    pa.bool_(),
    *INTEGERS,
    *FLOATS,
    *TEMPORAL,
    *DECIMALS,
    *VARIABLE,
    *FIXED_BINARY,
)
"""The primitive types supported by every version."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of values."""

    distinct: int
    """The approximate number of distinct values."""
    runs: bool
    """Whether equal values are adjacent."""
    text_bytes: int
    """The longest string."""
    list_items: int
    """The longest list."""
    null_share: float
    """The probability of a null."""


def data_types(version: FileVersion, *, depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    """Draw types supported by a file version, nested up to `depth`."""
    leaves = st.sampled_from((*LEAVES, *VIEWS, *EXTENSIONS, *DICTIONARIES)) | st.builds(
        pa.list_, st.sampled_from(LIST_ITEMS), st.integers(1, 5)
    )
    if version > FileVersion.V0_1:
        leaves |= st.builds(
            lambda item, inner, outer: pa.list_(pa.list_(item, inner), outer),
            st.sampled_from(LIST_ITEMS),
            st.integers(1, 3),
            st.integers(1, 3),
        )
    if depth == 0:
        return leaves
    inner = data_types(version, depth=depth - 1)
    nested = (
        st.builds(pa.list_, inner)
        | st.builds(pa.large_list, inner)
        | st.lists(inner, min_size=1, max_size=3).map(_struct_of)
    )
    if version >= FileVersion.V2_2:
        nested |= st.builds(pa.map_, st.sampled_from((pa.string(), pa.int32())), inner)
    return leaves | nested


def column_types(version: FileVersion, *, depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    """Draw types of columns, with fixed-size lists of structs since 2.2.

    Such lists may be in structs, but not in lists.
    """
    if version < FileVersion.V2_2:
        return data_types(version, depth=depth)
    fixed = fixed_lists_of_structs(st.sampled_from(LEAVES[1:]))
    sibling = st.sampled_from(LEAVES[1:])
    return (
        data_types(version, depth=depth)
        | fixed
        | st.builds(lambda inner: _struct_of([inner]), fixed)
        | st.builds(lambda inner, other: _struct_of([inner, other]), fixed, sibling)
    )


def fixed_lists_of_structs(
    leaves: st.SearchStrategy[pa.DataType],
) -> st.SearchStrategy[pa.DataType]:
    """Draw fixed-size lists of structs that may contain structs and fixed-size lists."""
    fixed = st.builds(pa.list_, st.sampled_from(LIST_ITEMS), st.integers(1, 3))
    children = leaves | fixed | st.builds(pa.list_, fixed, st.integers(1, 3))
    children |= st.lists(children, min_size=1, max_size=2).map(_struct_of)
    return st.builds(
        lambda each, size: pa.list_(_struct_of(each), size),
        st.lists(children, min_size=1, max_size=3),
        st.integers(1, 3),
    )


@st.composite
def distributions(draw: st.DrawFn, *, nullable: bool = True) -> Distribution:
    """Draw a distribution of values."""
    return Distribution(
        distinct=draw(st.sampled_from((1, 2, 50, 1 << 16))),
        runs=draw(st.booleans()),
        text_bytes=draw(st.sampled_from((0, 3, 20, 400))),
        list_items=draw(st.sampled_from((1, 3, 10))),
        null_share=draw(st.sampled_from((0.0, 0.0, 0.05, 0.5, 1.0))) if nullable else 0.0,
    )


@st.composite
def arrays(
    draw: st.DrawFn,
    data_type: st.SearchStrategy[pa.DataType],
    num_rows: st.SearchStrategy[int],
    *,
    nullable: bool = True,
) -> pa.Array:
    """Draw one array."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    distribution = draw(distributions(nullable=nullable))
    return random_array(rng, draw(data_type), draw(num_rows), distribution)


@st.composite
def tables(
    draw: st.DrawFn, version: FileVersion, *, rows_max: int = 3000, columns_max: int = 3
) -> pa.Table:
    """Draw a table of chunked columns; some chunks are slices."""
    num_rows = draw(
        st.sampled_from((0, 1, 2, 7, 64, 100, 1000, 1024, 1030, 2500)).filter(
            lambda rows: rows <= rows_max
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    fields: list[pa.Field] = []
    columns: list[pa.ChunkedArray] = []
    for index in range(draw(st.integers(1, columns_max))):
        data_type = draw(column_types(version))
        distribution = draw(distributions(nullable=version > FileVersion.V0_1))
        if version is FileVersion.V2_0 and holds_struct(data_type):
            distribution = _without_nulls(distribution)
        nullable = distribution.null_share > 0 or draw(st.booleans()) or pa.types.is_null(data_type)
        fields.append(pa.field(f"c{index}", data_type, nullable))
        columns.append(
            random_chunks(rng, data_type, num_rows, distribution, chunks=draw(st.integers(1, 3)))
        )
    return pa.table(columns, schema=pa.schema(fields))


@st.composite
def cut_tables(
    draw: st.DrawFn, versions: Sequence[FileVersion]
) -> tuple[FileVersion, pa.Table, list[int]]:
    """Return a version, a table, and the boundary rows of non-empty files."""
    version = draw(st.sampled_from(versions))
    table = draw(tables(version, rows_max=100).filter(lambda each: each.num_rows > 1))
    cuts = draw(st.sets(st.integers(1, table.num_rows - 1), min_size=1, max_size=6))
    return version, table, [0, *sorted(cuts), table.num_rows]


def holds_struct(data_type: pa.DataType) -> bool:
    """Return whether a type contains a struct; version 2.0 cannot store its nulls."""
    if pa.types.is_struct(data_type) or pa.types.is_map(data_type):
        return True
    parts = [data_type.field(index).type for index in range(data_type.num_fields)]
    return any(holds_struct(part) for part in parts)


# --- values -----------------------------------------------------------------------------------


def random_chunks(
    rng: Generator,
    data_type: pa.DataType,
    num_rows: int,
    distribution: Distribution,
    *,
    chunks: int,
) -> pa.ChunkedArray:
    """Return values in chunks; every other chunk is a slice of a longer array."""
    borders = np.sort(rng.integers(0, num_rows + 1, chunks - 1))
    sizes = np.diff(np.concatenate(([0], borders, [num_rows])))
    found: list[pa.Array] = []
    for index, size in enumerate(sizes.tolist()):
        before, after = rng.integers(0, 12, 2).tolist() if index % 2 == 0 else (0, 0)
        whole = random_array(rng, data_type, before + size + after, distribution)
        found.append(whole.slice(before, size))
    return pa.chunked_array(found, data_type)


def random_array(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    """Return random values of a type; values below nulls are random too."""
    if isinstance(data_type, pa.BaseExtensionType):
        storage = random_array(rng, data_type.storage_type, num_rows, distribution)
        if data_type == pa.json_(pa.string()):
            storage = _random_json(rng, num_rows, distribution)
        return pa.ExtensionArray.from_storage(data_type, storage)
    if pa.types.is_null(data_type):
        return pa.nulls(num_rows)
    if pa.types.is_dictionary(data_type):
        return _random_dictionary(rng, data_type, num_rows, distribution)
    if pa.types.is_struct(data_type):
        return _random_struct(rng, data_type, num_rows, distribution)
    if pa.types.is_map(data_type):
        return _random_map(rng, data_type, num_rows, distribution)
    if pa.types.is_fixed_size_list(data_type):
        return _random_fixed_list(rng, data_type, num_rows, distribution)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _random_list(rng, data_type, num_rows, distribution)
    if _is_variable(data_type):
        return _random_strings(rng, data_type, num_rows, distribution)
    return _random_fixed(rng, data_type, num_rows, distribution)


def _choose_values(rng: Generator, num_rows: int, distribution: Distribution) -> np.ndarray:
    """Return the number of the distinct value of each row."""
    choices = rng.integers(0, distribution.distinct, num_rows)
    return np.sort(choices) if distribution.runs else choices


def _validity(rng: Generator, num_rows: int, distribution: Distribution) -> pa.Buffer | None:
    if not distribution.null_share:
        return None
    is_valid = rng.random(num_rows) >= distribution.null_share
    return pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())


def _mask(rng: Generator, num_rows: int, distribution: Distribution) -> pa.Array | None:
    return (
        pa.array(rng.random(num_rows) < distribution.null_share)
        if distribution.null_share
        else None
    )


def _random_fixed(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    choices = _choose_values(rng, num_rows, distribution)
    validity = _validity(rng, num_rows, distribution)
    if pa.types.is_boolean(data_type):
        bits = np.packbits(choices % 2 == 1, bitorder="little").tobytes()
        return pa.Array.from_buffers(data_type, num_rows, [validity, pa.py_buffer(bits)])
    if pa.types.is_decimal(data_type):
        return _random_decimals(rng, data_type, choices, distribution)
    width = data_type.bit_width // 8
    distinct = _distinct_values(rng, data_type, distribution.distinct)
    values = distinct.view(np.uint8).reshape(-1, width)[choices].tobytes()
    return pa.Array.from_buffers(data_type, num_rows, [validity, _unaligned(values)])


def _distinct_values(rng: Generator, data_type: pa.DataType, count: int) -> np.ndarray:
    """Return values of a fixed-width type, extreme ones first."""
    if pa.types.is_floating(data_type):
        dtype = np.dtype(data_type.to_pandas_dtype())
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5], dtype)
        return np.concatenate([special, rng.normal(size=count).astype(dtype)])[:count].copy()
    if pa.types.is_integer(data_type):
        dtype = np.dtype(data_type.to_pandas_dtype())
        limits = np.iinfo(dtype)
        high = [limits.max, 1 << (dtype.itemsize * 4), 100][rng.integers(3)]
        special = np.array([limits.min, limits.max, 0, 1], dtype)
        values = rng.integers(0, high, count, dtype=dtype)
        return np.concatenate([special, values])[:count] if rng.random() < 0.3 else values
    if pa.types.is_fixed_size_binary(data_type):
        fixed: np.ndarray = rng.integers(0, 256, count * data_type.byte_width, np.uint8)
        return fixed
    seconds: np.ndarray = rng.integers(0, 86_400, count)
    if pa.types.is_date64(data_type):
        return seconds * 86_400_000
    unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.get(getattr(data_type, "unit", ""), 1)
    numbers: np.ndarray = (seconds * unit).astype(f"i{data_type.bit_width // 8}")
    return numbers


def _random_decimals(
    rng: Generator, data_type: pa.DataType, choices: np.ndarray, distribution: Distribution
) -> pa.Array:
    digits = min(data_type.precision, 18)
    distinct = [
        decimal.Decimal(int(value)).scaleb(-data_type.scale)
        for value in rng.integers(-(10**digits) + 1, 10**digits, min(distribution.distinct, 200))
    ]
    is_null = rng.random(len(choices)) < distribution.null_share
    values = [
        None if null else distinct[choice % len(distinct)]
        for null, choice in zip(is_null, choices.tolist(), strict=True)
    ]
    return pa.array(values, data_type)


def _is_variable(data_type: pa.DataType) -> bool:
    return data_type in (*VARIABLE, *VIEWS)


def _random_strings(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    distinct = _distinct_texts(rng, min(distribution.distinct, 500), distribution.text_bytes)
    choices = _choose_values(rng, num_rows, distribution) % len(distinct)
    texts = [distinct[choice] for choice in choices.tolist()]
    offsets_type = np.int64 if data_type in (pa.large_string(), pa.large_binary()) else np.int32
    lead = rng.integers(0, 3)
    sizes = np.fromiter((len(text) for text in texts), np.int64, num_rows)
    offsets = (lead + np.concatenate(([0], np.cumsum(sizes)))).astype(offsets_type)
    buffers = [
        _validity(rng, num_rows, distribution),
        pa.py_buffer(offsets.tobytes()),
        _unaligned(b"~" * lead + b"".join(texts)),
    ]
    if data_type in VIEWS:
        plain = pa.string() if data_type == pa.string_view() else pa.binary()
        return pa.Array.from_buffers(plain, num_rows, buffers).cast(data_type)
    return pa.Array.from_buffers(data_type, num_rows, buffers)


def _distinct_texts(rng: Generator, count: int, text_bytes: int) -> list[bytes]:
    letters = np.array(list("abcdefghij aeiou éß漢😀"))
    lengths = rng.integers(0, text_bytes + 1, count)
    return [
        "".join(rng.choice(letters, size)).encode()[:text_bytes].decode(errors="ignore").encode()
        for size in lengths.tolist()
    ]


def _random_json(rng: Generator, num_rows: int, distribution: Distribution) -> pa.Array:
    documents = [
        "null",
        "{}",
        '[1,-2.5,"x",true]',
        '{"b":{"c":[]},"a":300}',
        '"é\\n"',
        *(f'{{"k":{number}}}' for number in rng.integers(-(10**6), 10**6, 5)),
    ]
    texts = [
        documents[choice % len(documents)]
        for choice in _choose_values(rng, num_rows, distribution).tolist()
    ]
    return pa.array(texts, pa.string(), mask=rng.random(num_rows) < distribution.null_share)


def _random_dictionary(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    # Three chunks of different items must fit 8-bit keys.
    count = min(distribution.distinct, 40)
    items = random_array(rng, data_type.value_type, count, _without_nulls(distribution))
    choices = _choose_values(rng, num_rows, distribution) % count
    keys = pa.array(
        choices, data_type.index_type, mask=rng.random(num_rows) < distribution.null_share
    )
    return pa.DictionaryArray.from_arrays(keys, items)


def _random_struct(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    fields = [data_type.field(index) for index in range(data_type.num_fields)]
    children = [random_array(rng, field.type, num_rows, distribution) for field in fields]
    return pa.StructArray.from_arrays(
        children, fields=fields, mask=_mask(rng, num_rows, distribution)
    )


def _random_list(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    offsets_type = np.int32 if pa.types.is_list(data_type) else np.int64
    offsets, items = _random_items(rng, num_rows, distribution)
    values = random_array(rng, data_type.value_type, items, distribution)
    buffers = [_validity(rng, num_rows, distribution), pa.py_buffer(offsets.astype(offsets_type))]
    return pa.Array.from_buffers(data_type, num_rows, buffers, children=[values])


def _random_items(
    rng: Generator, num_rows: int, distribution: Distribution
) -> tuple[np.ndarray, int]:
    """Return the offsets of lists and their number of items."""
    sizes = rng.integers(0, distribution.list_items + 1, num_rows)
    offsets = rng.integers(0, 3) + np.concatenate(([0], np.cumsum(sizes)))
    return offsets, int(offsets[-1]) + int(rng.integers(0, 3))


def _random_map(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    offsets, count = _random_items(rng, num_rows, distribution)
    keys = random_array(rng, data_type.key_type, count, _without_nulls(distribution))
    items = random_array(rng, data_type.item_type, count, distribution)
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[data_type.key_field, data_type.item_field]
    )
    buffers = [_validity(rng, num_rows, distribution), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(data_type, num_rows, buffers, children=[entries])


def _random_fixed_list(
    rng: Generator, data_type: pa.DataType, num_rows: int, distribution: Distribution
) -> pa.Array:
    values = random_array(rng, data_type.value_type, num_rows * data_type.list_size, distribution)
    validity = _validity(rng, num_rows, distribution)
    return pa.Array.from_buffers(data_type, num_rows, [validity], children=[values])


def _without_nulls(distribution: Distribution) -> Distribution:
    return Distribution(
        distribution.distinct,
        distribution.runs,
        distribution.text_bytes,
        distribution.list_items,
        0.0,
    )


def _struct_of(children: list[pa.DataType]) -> pa.DataType:
    return pa.struct([pa.field(f"f{index}", child) for index, child in enumerate(children)])


def _unaligned(data: bytes) -> pa.Buffer:
    """Return bytes at an odd address."""
    return pa.py_buffer(b"\0" + data).slice(1)


# --- comparing --------------------------------------------------------------------------------


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of values read back after they were stored.

    >>> stored_type(pa.list_(pa.string_view()))
    ListType(list<item: string>)
    """
    if pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_binary_view(data_type):
        return pa.binary()
    make: Callable[[pa.Field], pa.DataType]
    if pa.types.is_struct(data_type):
        return pa.struct([_stored_field(data_type.field(i)) for i in range(data_type.num_fields)])
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, _stored_field(data_type.item_field))
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_stored_field(data_type.value_field), data_type.list_size)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        make = pa.list_ if pa.types.is_list(data_type) else pa.large_list
        return make(_stored_field(data_type.value_field))
    return data_type


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type))


def stored_table(table: pa.Table) -> pa.Table:
    """Return the table that is read back after a table was stored."""
    schema = pa.schema([_stored_field(field) for field in table.schema], table.schema.metadata)
    columns = [
        pa.chunked_array([cast_values(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def compacted_table(table: pa.Table) -> pa.Table:
    """Return the stored form of a table, copied to aligned buffers without slices.

    pylance panics for some unaligned or sliced arrays.
    """
    stored = stored_table(table)
    columns = [
        pa.concat_arrays([chunk for whole in column.chunks for chunk in (whole, whole[:0])])
        if column.num_chunks
        else column
        for column in stored.columns
    ]
    return pa.table(columns, schema=stored.schema)


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Raise unless two tables have the same columns and the same values, NaN included."""
    assert found.column_names == expected.column_names
    assert found.num_rows == expected.num_rows
    for name in expected.column_names:
        left, right = found[name], expected[name]
        assert left.type == right.type, f"{name}: {left.type} is not {right.type}"
        if left.equals(right):
            continue
        # NaN is not equal to itself, so printed values are compared.
        pairs = itertools.zip_longest(left.to_pylist(), right.to_pylist())
        for row, (mine, theirs) in enumerate(pairs):
            assert repr(mine) == repr(theirs), f"{name} row {row}: {mine!r} is not {theirs!r}"

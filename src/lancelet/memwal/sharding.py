"""Assign rows to shards.

    unsharded            0
    identity             the value itself
    bucket, 8 buckets    murmur3(value) mod 8: 1 -> 2, 2 -> 7, 3 -> 1; null -> 0
    year                 2024-05-17 -> 2024, in UTC if a column has a time zone
    an expression        SQL over the columns of the table: `upper(country)`

The hash is MurmurHash3 with 32 bits. Numbers of up to 32 bits are one word, larger numbers two. The
bytes of a text after the last complete word are one sign-extended word each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.expr.compile import compile_value
from lancelet.expr.data_types import parse_arrow_type, print_arrow_type
from lancelet.expr.evaluate import project
from lancelet.format.schema import Schema
from lancelet.memwal.keys import rows_by_length
from lancelet.values import dataclass

_T = pa.types
_TEXTS: Final = (_T.is_string, _T.is_large_string, _T.is_binary, _T.is_large_binary)
_SHARD_KEYS: Final = {
    "identity": (_T.is_boolean, _T.is_integer, _T.is_string, _T.is_large_string),
    "bucket": (
        *(_T.is_boolean, _T.is_integer, _T.is_string, _T.is_large_string),
        *(_T.is_float32, _T.is_float64, _T.is_date32, _T.is_timestamp, _T.is_time),
    ),
}
"""The column types that all implementations support as shard keys."""
_BUCKETS_MAX: Final = 1024
_RESULT_TYPES: Final = (
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
)
_NEVER_NULL: Final = frozenset({"unsharded", "bucket"})
_NAN32: Final = np.uint32(0x7FC00000)
_NAN64: Final = np.uint64(0x7FF8000000000000)

UInt32s = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ShardingField:
    """A value that identifies a shard, and its computation from columns.

    It has no slots, so that programs can serialize it with `vars`.
    """

    field_id: str
    source_ids: Sequence[int]
    transform: str | None = None
    expression: str | None = None
    result_type: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardingSpec:
    """A specification that assigns rows to shards."""

    spec_id: int
    fields: Sequence[ShardingField]


def evaluate_spec(batch: pa.RecordBatch, spec: ShardingSpec, schema: Schema) -> pa.RecordBatch:
    """Return the shard key values of rows."""
    columns = [_evaluate(batch, each, schema) for each in spec.fields]
    fields = [
        pa.field(each.field_id, column.type, nullable=each.transform not in _NEVER_NULL)
        for each, column in zip(spec.fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def check_shard_key(name: str, kind: pa.DataType, transform: str) -> None:
    """Raise if other implementations do not support a column type as shard key."""
    if not any(each(kind) for each in _SHARD_KEYS[transform]):
        raise UnsupportedError(
            f"the column {name!r} has a type which cannot be used as a shard key",
            type=str(kind),
            transform=transform,
        )


def buckets_of(values: pa.Array, count: int) -> npt.NDArray[np.int32]:
    """Return the bucket of each value.

    >>> buckets_of(pa.array([1, 2, 3, None], pa.int32()), 8).tolist()
    [2, 7, 1, 0]
    """
    if not 1 <= count <= _BUCKETS_MAX:
        raise InvalidInputError("the number of buckets must be 1 to 1024", num_buckets=count)
    hashes = _hashes(_without_nulls(values))
    buckets = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
    if values.null_count:
        buckets[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return buckets


def _evaluate(batch: pa.RecordBatch, shard_field: ShardingField, schema: Schema) -> pa.Array:
    if shard_field.transform == "unsharded":
        return pa.array(np.zeros(len(batch), np.int32))
    if shard_field.expression is not None:
        return _computed(batch, shard_field, schema)
    if len(shard_field.source_ids) != 1:
        raise UnsupportedError(
            "a sharding rule requires one column and a transform, or an expression",
            field=shard_field.field_id,
            transform=shard_field.transform,
            source_ids=list(shard_field.source_ids),
        )
    path = schema.path_of(shard_field.source_ids[0])
    if path not in batch.schema.names:
        raise FieldNotFoundError("missing sharding column", column=path)
    values = batch.column(path)
    if shard_field.transform == "identity":
        return values
    if shard_field.transform == "bucket":
        count = int(shard_field.parameters.get("num_buckets", 0))
        return pa.array(buckets_of(values, count), pa.int32())
    if shard_field.transform == "year":
        return _years(values)
    raise UnsupportedError(
        "unknown sharding transform",
        transform=shard_field.transform,
        expected=["unsharded", "identity", "bucket", "year"],
    )


def _computed(batch: pa.RecordBatch, shard_field: ShardingField, schema: Schema) -> pa.Array:
    """Return the values of an expression, cast to the result type of the field."""
    if shard_field.transform is not None:
        raise InvalidInputError(
            "a sharding rule requires either a transform or an expression, not both",
            field=shard_field.field_id,
        )
    for field_id in shard_field.source_ids:
        path = schema.path_of(field_id)
        if path.partition(".")[0] not in batch.schema.names:
            raise FieldNotFoundError("missing sharding column", column=path)
    bound = compile_value(str(shard_field.expression), batch.schema)
    found = project({shard_field.field_id: bound.expression}, batch).column(0)
    return found.cast(_type_named(shard_field.result_type)) if shard_field.result_type else found


def _type_named(text: str) -> pa.DataType:
    """Return the type with a name in a specification, such as `int32`, `utf8` or `large_utf8`."""
    types_by_name = {print_arrow_type(each).lower(): each for each in _RESULT_TYPES}
    found = types_by_name.get(text.lower().replace("_", ""))
    if found is not None:
        return found
    try:
        return parse_arrow_type(text)
    except ValueError as error:
        raise InvalidInputError(
            "unknown type of shard values",
            result_type=text,
            expected=sorted(types_by_name),
        ) from error


def _years(values: pa.Array) -> pa.Array:
    kind = values.type
    if not (_T.is_date(kind) or _T.is_timestamp(kind)):
        raise UnsupportedError("the year requires a date or timestamp", type=str(kind))
    if _T.is_timestamp(kind) and kind.tz is not None:
        values = values.cast(pa.timestamp(kind.unit))
    return pc.year(values).cast(pa.int32())


def _without_nulls(values: pa.Array) -> pa.Array:
    """Replace nulls by arbitrary values."""
    _, *data = values.buffers()
    return pa.Array.from_buffers(values.type, len(values), [None, *data], offset=values.offset)


def _hashes(values: pa.Array) -> UInt32s:
    kind = values.type
    if any(each(kind) for each in _TEXTS):
        hashes = np.empty(len(values), np.uint32)
        for rows, texts in rows_by_length(values.cast(pa.binary())):
            hashes[rows] = _hash_texts(texts)
        return hashes
    if _T.is_boolean(kind):
        return _mix([values.cast(pa.uint8()).to_numpy().astype(np.uint32)], 4)
    if _T.is_floating(kind) and kind.bit_width == 32:
        floats = values.to_numpy(zero_copy_only=False) + np.float32(0)
        bits = np.where(np.isnan(floats), _NAN32, floats.view(np.uint32))
        return _mix([bits.astype(np.uint32)], 4)
    if _T.is_floating(kind) and kind.bit_width == 64:
        doubles = values.to_numpy(zero_copy_only=False) + 0.0
        return _hash_uint64(np.where(np.isnan(doubles), _NAN64, doubles.view(np.uint64)))
    is_number = _T.is_integer(kind) or _T.is_temporal(kind)
    if not is_number or kind.bit_width > 64:
        raise UnsupportedError("the type does not support bucket sharding", type=str(kind))
    if _T.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if kind.bit_width <= 32:
        return _mix([values.to_numpy().astype(np.int32, casting="unsafe").view(np.uint32)], 4)
    return _hash_uint64(values.to_numpy().view(np.uint64))


def _hash_uint64(numbers: npt.NDArray[np.uint64]) -> UInt32s:
    low = (numbers & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return _mix([low, (numbers >> np.uint64(32)).astype(np.uint32)], 8)


def _hash_texts(texts: npt.NDArray[np.uint8]) -> UInt32s:
    """Return the hash of each row of bytes of equal length."""
    num_rows, length = texts.shape
    whole = length // 4 * 4
    blocks = np.ascontiguousarray(texts[:, :whole]).view("<u4").T if whole else ()
    rest = texts[:, whole:].astype(np.int8).astype(np.int32).view(np.uint32).T
    return _mix([*blocks, *rest], length, num_rows)


def _mix(blocks: Sequence[UInt32s], length: int, num_rows: int | None = None) -> UInt32s:
    """Mix words into the hashes of many values; `words` has one array per word."""
    found = np.zeros(len(blocks[0]) if num_rows is None else num_rows, np.uint32)
    with np.errstate(over="ignore"):
        for word in blocks:
            mixed = _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
            found = _rotate(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found ^= np.uint32(length)
        found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return found ^ (found >> np.uint32(16))


def _rotate(values: UInt32s, bits: int) -> UInt32s:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))

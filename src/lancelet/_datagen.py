"""Random rows of a schema, for tests and benchmarks. Mirrors the pylance module of this name.

rand_batches(schema, num_batches=10, rows_per_batch=1000)
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import InvalidInputError, UnsupportedError

_BATCHES: Final = 1
_ROWS: Final = 1024
_TEXT_BYTES: Final = 16
_LIST_ITEMS: Final = 4


def is_datagen_supported() -> bool:
    """Return True: rows can always be generated."""
    return True


def rand_batches(
    schema: pa.Schema,
    *,
    num_batches: int | None = None,
    batch_size_bytes: int | None = None,
    rows_per_batch: int | None = None,
) -> list[pa.RecordBatch]:
    """Return batches of random values without nulls.

    Args:
        schema: The columns: numbers, times, strings, binary, lists and structs of these.
        num_batches: The number of batches, by default one.
        batch_size_bytes: The approximate size of a batch in bytes.
        rows_per_batch: The number of rows per batch instead, by default 1024.
    """
    if batch_size_bytes is not None and rows_per_batch is not None:
        raise InvalidInputError("batch_size_bytes and rows_per_batch are mutually exclusive")
    rows = _ROWS if rows_per_batch is None else rows_per_batch
    if batch_size_bytes is not None:
        rows = math.ceil(batch_size_bytes / sum(_row_bytes(field.type) for field in schema))
    count = _BATCHES if num_batches is None else num_batches
    random = np.random.default_rng(surroundings.random_bits(64))
    return [
        pa.RecordBatch.from_arrays(
            [_values(field.type, rows, random) for field in schema], schema=schema
        )
        for _ in range(count)
    ]


def _row_bytes(data_type: pa.DataType) -> float:
    """Return the approximate number of bytes per value."""
    if pa.types.is_struct(data_type):
        return sum(_row_bytes(part.type) for part in data_type)
    if pa.types.is_fixed_size_list(data_type):
        return int(data_type.list_size) * _row_bytes(data_type.value_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _LIST_ITEMS * _row_bytes(data_type.value_type)
    return _TEXT_BYTES if _is_text(data_type) else float(data_type.bit_width) / 8


def _is_text(data_type: pa.DataType) -> bool:
    return data_type in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}


def _values(data_type: pa.DataType, rows: int, random: np.random.Generator) -> pa.Array:
    if pa.types.is_struct(data_type):
        parts = [_values(part.type, rows, random) for part in data_type]
        return pa.StructArray.from_arrays(parts, fields=list(data_type))
    if pa.types.is_fixed_size_list(data_type):
        items = _values(data_type.value_type, rows * data_type.list_size, random)
        return pa.FixedSizeListArray.from_arrays(items, type=data_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        items = _values(data_type.value_type, rows * _LIST_ITEMS, random)
        offsets = np.arange(rows + 1) * _LIST_ITEMS
        is_large = pa.types.is_large_list(data_type)
        made = pa.LargeListArray if is_large else pa.ListArray
        whole = pa.array(offsets, pa.int64() if is_large else pa.int32())
        return made.from_arrays(whole, items, type=data_type)
    if pa.types.is_boolean(data_type):
        return pa.array(random.integers(0, 2, rows, np.uint8)).cast(pa.bool_())
    if pa.types.is_floating(data_type):
        return pa.array(random.random(rows)).cast(data_type, safe=False)
    if _is_text(data_type):
        texts = random.integers(ord("a"), ord("z") + 1, (rows, _TEXT_BYTES), np.uint8)
        fixed = pa.Array.from_buffers(
            pa.binary(_TEXT_BYTES), rows, [None, pa.py_buffer(texts.tobytes())]
        )
        return fixed.cast(pa.binary()).cast(data_type)
    if data_type.bit_width not in {8, 16, 32, 64}:
        raise UnsupportedError("random values are not supported for this type", type=str(data_type))
    width = data_type.bit_width // 8
    data = pa.py_buffer(random.bytes(rows * width))
    return pa.Array.from_buffers(data_type, rows, [None, data])

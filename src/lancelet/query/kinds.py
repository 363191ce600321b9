"""Kinds of Arrow types that expressions treat alike."""

from __future__ import annotations

import pyarrow as pa


def is_text(data_type: pa.DataType) -> bool:
    """Whether values are text, however they are laid out."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
    )


def is_bytes(data_type: pa.DataType) -> bool:
    """Whether values are byte strings, of any or of fixed size."""
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def is_number(data_type: pa.DataType) -> bool:
    """Whether values are integers, floats or decimals."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_decimal(data_type)
    )


def is_ticking(data_type: pa.DataType) -> bool:
    """Whether values count ticks: dates, times, timestamps and durations."""
    return bool(pa.types.is_temporal(data_type)) and not pa.types.is_interval(data_type)


def is_any_list(data_type: pa.DataType) -> bool:
    """Whether values are lists, of any or of fixed size."""
    return bool(
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )

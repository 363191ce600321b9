"""Python values of Arrow columns; dates and times beyond Python's range become ISO text.

date32    0, 2**31 - 1        datetime.date(1970, 1, 1), "5881580-07-11"
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; dates and times that Python cannot represent are text.

    >>> import pyarrow as pa
    >>> values_of(pa.chunked_array([pa.array([2**31 - 1], pa.int32()).cast(pa.date32())]))
    ['5881580-07-11']
    """
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [scalar_value(each) for each in column]
    return values


def scalar_value(scalar: Any) -> Any:
    """Return the Python value of a scalar; dates and times beyond Python's range are ISO text."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        pass
    if isinstance(scalar, pa.ExtensionScalar):
        return scalar_value(scalar.value)
    if isinstance(scalar, pa.StructScalar):
        return {name: scalar_value(each) for name, each in scalar.items()}
    if isinstance(scalar, pa.MapScalar):
        entries = (list(entry.values()) for entry in scalar.values)
        return [tuple(map(scalar_value, entry)) for entry in entries]
    if isinstance(scalar, pa.ListScalar):
        return list(map(scalar_value, scalar.values))
    return _far_moment(scalar)


def _far_moment(scalar: Any) -> str:
    """Return a date, time or duration as text; NumPy has no limits of years."""
    data_type = scalar.type
    if pa.types.is_date32(data_type):
        return str(np.datetime64(scalar.value, "D"))
    if pa.types.is_date64(data_type):
        return str(np.datetime64(scalar.value, "ms").astype("datetime64[D]"))
    text = str(np.datetime64(scalar.value, data_type.unit))
    if pa.types.is_time(data_type):
        return text.partition("T")[2]
    if pa.types.is_timestamp(data_type):
        return text if data_type.tz is None else f"{text}Z"
    return f"{scalar.value} {data_type.unit}"

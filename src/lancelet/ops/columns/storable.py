"""What files of version 0.1 cannot say: that a value is null, unless it is text or bytes.

    strings, bytes     null is stored
    numbers, booleans  null would be read as 0 or false
    lists              null would be read as an empty list

New columns whose nulls would be lost are refused, where other writers lose them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.format.field import Field
from lancelet.format.version import FileVersion
from lancelet.ops.columns.fields import ColumnUnsupportedError

_T = pa.types


def check_nulls_storable(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> None:
    """Refuse values of new columns of a 0.1 table that would not be read as they are."""
    for field in fields:
        _check(batch.column(field.name), field.name)


def _check(array: pa.Array, path: str) -> None:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if _keeps_nulls(kind):
        return
    if array.null_count:
        raise ColumnUnsupportedError(
            f"Column '{path}' has null values of type {kind}, but storing nulls for this data type "
            "is not supported by files of version 0.1",
            column=path,
            type=str(kind),
            nulls=array.null_count,
            version=FileVersion.V0_1.value,
        )
    if _T.is_struct(kind):
        for place in range(kind.num_fields):
            _check(array.field(place), f"{path}.{kind.field(place).name}")
    elif _T.is_list(kind) or _T.is_large_list(kind) or _T.is_fixed_size_list(kind):
        _check(pc.list_flatten(array), f"{path}.item")


def _keeps_nulls(kind: pa.DataType) -> bool:
    is_text = _T.is_string(kind) or _T.is_large_string(kind)
    return bool(is_text or _T.is_binary(kind) or _T.is_large_binary(kind) or _T.is_null(kind))

"""JSON columns: JSON text for users, stored in the binary form of `kernels.jsonb`.

    users     extension<arrow.json>   {"b": 1, "a": [2]}
    stored    large_binary            40000002 10000001 10000001 5000000a 20000002 61 62 ...
    users     extension<arrow.json>   {"a":[2],"b":1}        keys in order, no spaces

A SQL null is a null of the column, a JSON null is a document.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import OffsetOverflowError, decode_jsonb, encode_jsonb

_INT32_MAX: Final = (1 << 31) - 1
_TEXT_LENGTH_MAX: Final = 100


def documents_to_storage(texts: pa.Array) -> pa.Array:
    """Encode an array of JSON strings for storage."""
    offsets, data, is_valid = _string_parts(texts.cast(pa.large_string()))
    try:
        ends, stored = encode_jsonb(offsets, data, is_valid)
    except CorruptDataError as error:
        # Imported on demand: loads the reference kernels, which nothing else needs.
        from lancelet.kernels.reference.jsonb import json_fault  # noqa: PLC0415

        row = error.facts["index"]
        assert isinstance(row, int)
        text = data[offsets[row] : offsets[row + 1]].tobytes()
        raise InvalidInputError(
            f"invalid JSON in a JSON column: {json_fault(text)}",
            row=row,
            text=text[:_TEXT_LENGTH_MAX].decode(errors="replace"),
        ) from error
    return _array(pa.large_binary(), ends, stored, is_valid)


def documents_from_storage(documents: pa.Array) -> pa.Array:
    """Decode stored documents to Arrow's JSON type."""
    ends, text = decode_jsonb(*(parts := _string_parts(documents)))
    if len(text) > _INT32_MAX:
        raise OffsetOverflowError("the documents exceed 2 GiB; read fewer rows", bytes=len(text))
    texts = _array(pa.string(), ends.astype(np.int32), text, parts[2])
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptDataError("a string of a JSON document is not UTF-8") from error
    return pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)


def _string_parts(array: pa.Array) -> tuple[Int64s, Bytes, npt.NDArray[np.bool_]]:
    """Return offsets, bytes and validity of large strings or large binary."""
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    _, offsets, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8), is_valid
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    return ends, np.frombuffer(data or b"", np.uint8), is_valid


def _array(
    data_type: pa.DataType,
    offsets: npt.NDArray[np.int32] | Int64s,
    data: Bytes,
    is_valid: npt.NDArray[np.bool_],
) -> pa.Array:
    validity = None
    if not is_valid.all():
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(data_type, len(is_valid), buffers)

"""Values at one place of JSON documents, as rows to be indexed.

    documents   {"x": 7}   {"x": 9}   {"y": 1}   {"x": null}
    path x      7          9          null       null           of type int64

The first value that is there says what type all must have; whole numbers count as floats among
floats. Where there is none at all the type is text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.base import IndexedRows
from lancelet.query.functions.json_path import find_values
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

_TYPES: Final = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def values_within(
    rows: IndexedRows, path: str, value_type: pa.DataType | None = None
) -> IndexedRows:
    """Return what a path finds in the documents of rows; the type is looked for if not given."""
    if value_type is None:
        value_type = _type_of_first(rows, path)
    return IndexedRows(value_type, _Found(rows, path, value_type), rows.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    rows: IndexedRows
    path: str
    value_type: pa.DataType

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        for documents, numbers in self.rows.parts:
            encoded = documents.storage.dictionary_encode()
            found = [
                _fitting(value, self.value_type, self.path)
                for value in _found(encoded.dictionary.to_pylist(), self.path)
            ]
            yield pa.array(found, self.value_type).take(encoded.indices), numbers


def _type_of_first(rows: IndexedRows, path: str) -> pa.DataType:
    for documents, _ in rows.parts:
        present = documents.storage.drop_null()
        for start in range(0, len(present), 1024):
            for value in _found(present.slice(start, 1024).to_pylist(), path):
                if value is not None:
                    return _type_of(value, path)
    return pa.string()


def _found(documents: Sequence[str | None], path: str) -> Iterator[Any]:
    for document in documents:
        values = [] if document is None else find_values(json.loads(document), path)
        yield values[0] if values else None


def _type_of(value: Any, path: str) -> pa.DataType:
    if type(value) not in _TYPES:
        raise InvalidInputError(
            "only numbers, texts and truth values of documents can be indexed",
            path=path,
            found=json.dumps(value)[:60],
        )
    return _TYPES[type(value)]


def _fitting(value: Any, value_type: pa.DataType, path: str) -> Any:
    """Return a value that is of the type, or a whole number among floats."""
    if value is None:
        return None
    found = _type_of(value, path)
    if found == value_type and (found != pa.int64() or np.iinfo(np.int64).min <= value < 1 << 63):
        return value
    if found == pa.int64() and value_type == pa.float64():
        return float(value)
    raise InvalidInputError(
        "the values at a path of documents must be of one type to be indexed",
        path=path,
        expected=str(value_type),
        found=json.dumps(value)[:60],
    )

"""Texts in lists: a row is one document, or each element of its lists is one.

    row 0  ["red fox", "fox"]      by row       "red fox fox"
    row 1  null                    by element   row 0 place 0 "red fox", row 0 place 1 "fox"

Lists may be in structs, and those in lists again; then a place has a number for each of the lists,
the outermost first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

Places = npt.NDArray[np.uint32]
"""A row for each document, with a column for each of the lists that it is in."""


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """The texts in lists: which row each is of, and where it is in the lists of the row."""

    texts: pa.Array
    rows: Int64s
    places: Places


def is_list(data_type: pa.DataType) -> bool:
    """Return whether values are lists of any length."""
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def is_text(data_type: pa.DataType) -> bool:
    """Return whether values are texts."""
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def no_places(count: int) -> Places:
    """Return the places of so many documents that are in no list."""
    return np.empty((count, 0), np.uint32)


def lists_of_texts(values: pa.Array, names: Sequence[str]) -> pa.Array:
    """Return texts in the lists they are in, without the structs that are on the way to them.

    >>> docs = pa.array([[{"title": "fox"}, {"title": "dog"}]])
    >>> lists_of_texts(docs, ["element", "title"]).to_pylist()
    [['fox', 'dog']]
    """
    if not names:
        return values
    if not is_list(values.type):
        return lists_of_texts(pc.struct_field(values, names[0]), names[1:])
    inner = lists_of_texts(values.flatten(), names[1:])
    counts = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), inner, mask=values.is_null())


def elements_of(values: pa.Array) -> Elements:
    """Return the texts of lists, of which null ones have none.

    >>> found = elements_of(pa.array([["a", None], None, ["b"]]))
    >>> found.texts.to_pylist(), found.rows.tolist(), found.places.tolist()
    (['a', None, 'b'], [0, 0, 2], [[0], [1], [0]])
    """
    rows = np.arange(len(values))
    places: list[npt.NDArray[np.uint32]] = []
    while is_list(values.type):
        parents = pc.list_parent_indices(values).to_numpy().astype(np.int64)
        first = np.searchsorted(parents, parents)
        own = (np.arange(len(parents)) - first).astype(np.uint32)
        places = [*(outer[parents] for outer in places), own]
        rows, values = rows[parents], values.flatten()
    table = np.stack(places, axis=1) if places else no_places(len(rows))
    return Elements(values, rows, np.ascontiguousarray(table))


def texts_per_row(values: pa.Array) -> pa.Array:
    """Return a text for each row; the texts of a list are one, apart by a blank.

    >>> texts_per_row(pa.array([["a", None, "b"], None, []])).to_pylist()
    ['a b', None, '']
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if not is_list(values.type):
        return values
    found = elements_of(values)
    has_text = found.texts.is_valid()
    rows = found.rows[has_text.to_numpy(zero_copy_only=False)]
    texts = found.texts.filter(has_text).cast(pa.large_string())
    offsets = np.searchsorted(rows, np.arange(len(values) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts, mask=values.is_null())
    return pc.binary_join(lists, pa.scalar(" ", pa.large_string()))


def check_has_lists(data_type: pa.DataType) -> None:
    """Raise unless values are lists, whose elements can be documents."""
    if not is_list(data_type):
        raise InvalidInputError(
            "the column has no List layer and cannot use ListElement document granularity",
            found=str(data_type),
        )

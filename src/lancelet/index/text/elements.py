"""Documents in list columns: a document is a row, or an element of its lists.

    row 0  ["red fox", "fox"]      by row       "red fox fox"
    row 1  null                    by element   row 0 index 0 "red fox", row 0 index 1 "fox"

Lists may be nested in structs and other lists. Elements of nested lists have one index per list,
outermost first.
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

ElementIndices = npt.NDArray[np.uint32]
"""List indices of each document, with one column per nesting level of lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """The elements of lists with their rows and list indices."""

    texts: pa.Array
    rows: Int64s
    element_indices: ElementIndices


def is_list(data_type: pa.DataType) -> bool:
    """Return whether a type is a list of variable length."""
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type))


def is_text(data_type: pa.DataType) -> bool:
    """Return whether a type is a string."""
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def no_element_indices(count: int) -> ElementIndices:
    """Return empty list indices for `count` documents outside of lists."""
    return np.empty((count, 0), np.uint32)


def lists_of_texts(values: pa.Array, names: Sequence[str]) -> pa.Array:
    """Extract nested lists of strings from lists of structs.

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


def list_elements(values: pa.Array) -> Elements:
    """Return the elements of lists. Null lists have none.

    >>> elements = list_elements(pa.array([["a", None], None, ["b"]]))
    >>> elements.texts.to_pylist(), elements.rows.tolist(), elements.element_indices.tolist()
    (['a', None, 'b'], [0, 0, 2], [[0], [1], [0]])
    """
    rows = np.arange(len(values))
    levels: list[npt.NDArray[np.uint32]] = []
    while is_list(values.type):
        parents = pc.list_parent_indices(values).to_numpy().astype(np.int64)
        first = np.searchsorted(parents, parents)
        innermost = (np.arange(len(parents)) - first).astype(np.uint32)
        levels = [*(outer[parents] for outer in levels), innermost]
        rows, values = rows[parents], values.flatten()
    element_indices = np.stack(levels, axis=1) if levels else no_element_indices(len(rows))
    return Elements(values, rows, np.ascontiguousarray(element_indices))


def texts_per_row(values: pa.Array) -> pa.Array:
    """Return one text per row, joining the elements of lists with spaces.

    >>> texts_per_row(pa.array([["a", None, "b"], None, []])).to_pylist()
    ['a b', None, '']
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if not is_list(values.type):
        return values
    elements = list_elements(values)
    has_text = elements.texts.is_valid()
    rows = elements.rows[has_text.to_numpy(zero_copy_only=False)]
    texts = elements.texts.filter(has_text).cast(pa.large_string())
    offsets = np.searchsorted(rows, np.arange(len(values) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts, mask=values.is_null())
    return pc.binary_join(lists, pa.scalar(" ", pa.large_string()))


def check_has_lists(data_type: pa.DataType) -> None:
    """Raise if the type is not a list."""
    if not is_list(data_type):
        raise InvalidInputError(
            "the column has no List layer and cannot use ListElement document granularity",
            found=str(data_type),
        )

"""Where the values of a 0.1 file are: one page per field and batch.

Rows are cut into batches, and every field has one page in each. A page is known by a position
and a length, which counts values; for a list it counts offsets, one more than there are lists.

    batches   0 1 2 | 3 4           rows_of_batch [3, 2]
    field 0   int32                 position [0, 19]    length [3, 2]
    field 1   string, offsets       position [17, ...]  length [3, 2]

No validity is stored anywhere. A null string and an empty one are the same to a reader.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.field import Field
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class FieldPages:
    """The pages of one field, by batch."""

    position: Int64s
    length: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class StoredBatches:
    """What the readers of fields know of a file."""

    bounds: Int64s
    """The first row of each batch, and the number of rows."""
    pages: Mapping[int, FieldPages]
    dictionaries: Mapping[int, pa.Array]
    """The values of dictionary fields, by the id of the field."""
    file_bytes: int

    def pages_of(self, field: Field) -> FieldPages:
        """Return the pages of a field."""
        pages = self.pages.get(field.id)
        if pages is None:
            raise CorruptDataError(
                "the page table does not know a field of the file",
                field=field.name,
                field_id=field.id,
                known=sorted(self.pages)[:100],
            )
        return pages

    def check_within(self, field: Field, pages: FieldPages, sizes: Int64s) -> None:
        """Raise unless pages of these sizes lie within the file."""
        outside = (pages.position < 0) | (pages.position > self.file_bytes - sizes)
        if outside.any():
            batch = int(np.argmax(outside))
            raise CorruptDataError(
                "a page lies outside of the file; was it cut short by a copy?",
                field=field.name,
                batch=batch,
                position=int(pages.position[batch]),
                page_bytes=int(sizes[batch]),
                file_bytes=self.file_bytes,
            )

    def values_per_batch(self, field: Field, *, extra: int) -> Int64s:
        """Return how many values each page of a field has, `extra` less than its length."""
        length = self.pages_of(field).length
        # A page has at most as many values as the file has bits, which keeps products small.
        bad = (length < extra) | (length > 8 * self.file_bytes + extra)
        if bad.any():
            batch = int(np.argmax(bad))
            raise CorruptDataError(
                "a page has an impossible length",
                field=field.name,
                batch=batch,
                length=int(length[batch]),
                file_bytes=self.file_bytes,
            )
        return length - extra


def is_variable(data_type: pa.DataType) -> bool:
    """Whether values are strings or bytes, each as long as it likes."""
    return any(
        is_kind(data_type)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )

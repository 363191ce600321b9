"""Page positions in a 0.1 file: one page per field and batch.

Rows are split into batches, and every field has one page in each. A page has a position and a
length in values; for a list this is the number of offsets, one more than that of lists.

    batches   0 1 2 | 3 4           rows_of_batch [3, 2]
    field 0   int32                 position [0, 19]    length [3, 2]
    field 1   string, offsets       position [17, ...]  length [3, 2]

Validity is not stored. Readers cannot distinguish null from empty strings.
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
    """Batches, pages and dictionaries of a file."""

    bounds: Int64s
    """The first row of each batch, followed by the number of rows."""
    pages: Mapping[int, FieldPages]
    dictionaries: Mapping[int, pa.Array]
    """The dictionary of each field, by field id."""
    file_bytes: int

    def pages_of(self, field: Field) -> FieldPages:
        """Return the pages of a field."""
        pages = self.pages.get(field.id)
        if pages is None:
            raise CorruptDataError(
                "a field of the file is missing in the page table",
                field=field.name,
                field_id=field.id,
                field_ids=sorted(self.pages)[:100],
            )
        return pages

    def check_within(self, field: Field, pages: FieldPages, sizes: Int64s) -> None:
        """Raise unless pages of the given sizes are within the file."""
        is_outside = (pages.position < 0) | (pages.position > self.file_bytes - sizes)
        if is_outside.any():
            batch = int(np.argmax(is_outside))
            raise CorruptDataError(
                "a page exceeds the file; the file may be truncated",
                field=field.name,
                batch=batch,
                position=int(pages.position[batch]),
                page_bytes=int(sizes[batch]),
                file_bytes=self.file_bytes,
            )

    def values_per_batch(self, field: Field, *, extra: int) -> Int64s:
        """Return the number of values of each page of a field: its length minus `extra`."""
        length = self.pages_of(field).length
        # A page has at most as many values as the file has bits, which prevents overflow.
        is_invalid = (length < extra) | (length > 8 * self.file_bytes + extra)
        if is_invalid.any():
            batch = int(np.argmax(is_invalid))
            raise CorruptDataError(
                "a page has an invalid length",
                field=field.name,
                batch=batch,
                length=int(length[batch]),
                file_bytes=self.file_bytes,
            )
        return length - extra


def is_variable(data_type: pa.DataType) -> bool:
    """Return whether values are strings or binary of variable length."""
    return any(
        is_kind(data_type)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )

"""What of a file is not as it was written: blocks whose sums differ, values that do not decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Ranges
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.file.base import DataFileReader
from lancelet.file.checksums import Checksums
from lancelet.file.storage import check_nulls, to_storage
from lancelet.file.v2.reader import FileReader
from lancelet.query.scan_types import read_as
from lancelet.table.location import Place

_STEP_BLOCKS: Final = 512
_BATCH_ROWS: Final = 64 * 1024


def wrong_bytes(place: Place, checksums: Checksums) -> Iterator[str]:
    """Yield a sentence for each block of a file that is not what was written."""
    count, size = len(checksums.crcs), checksums.block_bytes
    with place.store.open_reader(place.path, checksums.file_bytes) as source:
        for first in range(0, count, _STEP_BLOCKS):
            blocks = np.arange(first, min(first + _STEP_BLOCKS, count), dtype=np.int64)
            start = first * size
            stop = min((first + len(blocks)) * size, checksums.file_bytes)
            found = source.read_ranges(Ranges.of((start, stop - start)))
            shift = int(found.position[0]) - start
            wrong = checksums.wrong_blocks(blocks, found.source, blocks * size + shift)
            for block in wrong.tolist():
                end = min((block + 1) * size, checksums.file_bytes)
                yield f"bytes {block * size} to {end} are not what was written"


def decoded(reader: FileReader | DataFileReader) -> Iterator[pa.RecordBatch]:
    """Yield every value of a file, in bounded memory; raise unless arrays are whole."""
    fields = reader.schema.fields
    if not fields:
        return
    read = [read_as(field) for field in fields]
    for batch in reader.iter_batches(read, RowRange(0, reader.num_rows), _BATCH_ROWS):
        for field, array in zip(fields, batch.columns, strict=True):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise CorruptDataError(
                    f"the values of a field are not whole: {error}", field=field.name
                ) from error
            if not any(node.is_blob for node in field.walk()):
                check_nulls(to_storage(array, field), field)
        yield batch

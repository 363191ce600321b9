"""Coverage-guided fuzzing of the data file readers.

Opening and reading any bytes as a file returns valid Arrow values or raises `CorruptDataError`,
`UnsupportedError` or `NotFoundError` (for a blob in another file). It never crashes, hangs, raises
another exception or uses gigabytes of memory. Decimals too large for their type and times longer
than a day are accepted as values. Files have no checksums, which would reject every mutation before
a decoder reads it. Each input is read from memory by the decoders and as a mapped file by the
column plans, which must not return different values.

    python fuzz/fuzz_file.py -max_total_time=60 NEW_FINDINGS_FOLDER fuzz/corpus/file
"""

from __future__ import annotations

import re
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["lancelet"]):
    import numpy as np
    import pyarrow as pa

    from lancelet.encodings.base import RowIndices, RowRange
    from lancelet.errors import CorruptDataError, NotFoundError, UnsupportedError
    from lancelet.file.checksums import Verify
    from lancelet.file.open import open_data_file
    from lancelet.io.cache import LruCache
    from lancelet.io.local import LocalStore
    from lancelet.io.memory import MemoryStore

ROWS_MAX = 10_000
TAKEN_ROWS_MAX = 100  # column plans read at most 256 rows
STORE = MemoryStore("fuzz")
FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")
MAPPED = LocalStore(FOLDER.name)
OUT_OF_RANGE = re.compile("does not fit in precision|acceptable range|whole number of days")


def read_everything(data: bytes) -> None:
    """Open the bytes as a file; read all of it, some rows of it and its zone statistics."""
    STORE.put("f.lance", data)
    reader = open_data_file(STORE, "f.lance", verify=Verify.OFF)
    try:
        rows = min(reader.num_rows, ROWS_MAX)
        for field in reader.schema.fields:
            for read in (RowRange(0, rows), RowIndices(np.arange(0, rows, 7))):
                for array in reader.read([field], read):
                    check_valid(array)
            reader.zone_statistics(field)
    finally:
        reader.close()


def take_mapped(data: bytes) -> None:
    """Read some rows of the bytes as a mapped file, and compare them with a read from memory."""
    STORE.put("f.lance", data)
    MAPPED.put("f.lance", data)
    readers = [
        open_data_file(store, "f.lance", verify=Verify.OFF, cache=LruCache(1 << 20))
        for store in (MAPPED, STORE)
    ]
    try:
        rows = RowIndices(np.linspace(0, readers[0].num_rows - 1, TAKEN_ROWS_MAX, dtype=np.int64))
        for field in readers[0].schema.fields if readers[0].num_rows else ():
            mapped, decoded = (taken(reader, field, rows) for reader in readers)
            # They validate different parts of a page, so either may refuse what the other reads.
            if mapped is not None and decoded is not None:
                assert str(mapped) == str(decoded), field
    finally:
        for reader in readers:
            reader.close()


def taken(reader, field, rows):
    """Return rows of a field, or None if the file is refused."""
    try:
        (array,) = reader.read([field], rows)
    except (CorruptDataError, UnsupportedError, NotFoundError):
        return None
    check_valid(array)
    return array


def check_valid(array: pa.Array) -> None:
    """Raise unless Arrow can work with an array; numbers may be out of the range of their type."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        if not OUT_OF_RANGE.search(str(error)):
            raise


def check_one_input(data: bytes) -> None:
    """The fuzzer's entry."""
    for read in (read_everything, take_mapped):
        try:
            read(data)
        except (CorruptDataError, UnsupportedError, NotFoundError):
            continue


if __name__ == "__main__":
    atheris.Setup(sys.argv, check_one_input)
    atheris.Fuzz()

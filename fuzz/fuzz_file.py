"""Coverage-guided fuzzing of the data file readers.

Opening and reading any bytes as a file returns valid Arrow values or raises `CorruptDataError`,
`UnsupportedError` or `NotFoundError` (for a blob in another file). It never crashes, hangs, raises
another exception or uses gigabytes of memory. Decimals too large for their type and times longer
than a day are accepted as values. Files have no checksums, which would reject every mutation before
a decoder reads it.

    python fuzz/fuzz_file.py -max_total_time=60 NEW_FINDINGS_FOLDER fuzz/corpus/file
"""

from __future__ import annotations

import re
import sys

import atheris

with atheris.instrument_imports(include=["lancelet"]):
    import numpy as np
    import pyarrow as pa

    from lancelet.encodings.base import RowIndices, RowRange
    from lancelet.errors import CorruptDataError, NotFoundError, UnsupportedError
    from lancelet.file.checksums import Verify
    from lancelet.file.open import open_data_file
    from lancelet.io.memory import MemoryStore

ROWS_MAX = 10_000
STORE = MemoryStore("fuzz")
OUT_OF_RANGE = re.compile("does not fit in precision|acceptable range|whole number of days")


def read_everything(data: bytes) -> None:
    """Open the bytes as a file; read all of it, some rows of it and what it says of zones."""
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


def check_valid(array: pa.Array) -> None:
    """Raise unless Arrow can work with an array; numbers may be out of the range of their type."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        if not OUT_OF_RANGE.search(str(error)):
            raise


def check_one_input(data: bytes) -> None:
    """The fuzzer's entry."""
    try:
        read_everything(data)
    except (CorruptDataError, UnsupportedError, NotFoundError):
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, check_one_input)
    atheris.Fuzz()

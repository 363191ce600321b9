"""Coverage-guided fuzzing of the data file readers.

Whatever the bytes, opening and reading a file ends in values that Arrow finds valid or in a
`CorruptDataError`, `UnsupportedError` or `MemoryLimitError`; never in a crash, a hang, another
exception or gigabytes of memory.

    python fuzz/fuzz_file.py fuzz/corpus/file -max_total_time=60
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["lancelet"]):
    from lancelet.encodings.base import RowRange
    from lancelet.errors import CorruptDataError, MemoryLimitError, UnsupportedError
    from lancelet.file.open import open_data_file
    from lancelet.io.memory import MemoryStore

ROWS_MAX = 100_000


def read_everything(data: bytes) -> None:
    """Open the bytes as a file and read all of it and some of it."""
    store = MemoryStore()
    store.put("f.lance", data)
    with open_data_file(store, "f.lance") as reader:
        rows = min(reader.num_rows, ROWS_MAX)
        for array in reader.read(reader.schema.fields, RowRange(0, rows)):
            array.validate(full=True)


def test_one_input(data: bytes) -> None:
    """The fuzzer's entry."""
    try:
        read_everything(data)
    except (CorruptDataError, UnsupportedError, MemoryLimitError):
        return


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-rss_limit_mb=2048", "-timeout=20"], test_one_input)
    atheris.Fuzz()

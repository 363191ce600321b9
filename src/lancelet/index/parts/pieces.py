"""Tables of few rows, put together until they are worth writing.

tables of    3 1 2 900 000 4 rows
pieces of    900 006           4
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

_BYTES: Final = 1 << 20
_TABLES_MAX: Final = 1024


def in_pieces(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in fewer tables."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for table in tables:
        waiting.append(table)
        waiting_bytes += table.nbytes
        if waiting_bytes >= _BYTES or len(waiting) >= _TABLES_MAX:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()

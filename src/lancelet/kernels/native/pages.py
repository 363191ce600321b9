"""Page encoder by `native/src/pages.cpp`; `encodings/choice/choose.py` defines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.pages import ENCODINGS, Found, PageRules, PagesEncoded, PageValues

_ROOM_FOR_VALUE: Final = 6
_ROOM: Final = 512
_NO_BYTES: Final = np.empty(0, np.uint8)


def encode_pages(
    pages: Sequence[PageValues],
    rows: int,
    rules: PageRules,
    *,
    has_large_chunks: bool,
    constants: int,
) -> PagesEncoded | None:
    """Encode pages of `rows` values each with the cheapest encoding; None if unsupported."""
    sources: tuple[list[Bytes], ...] = ([], [], [])
    ends = [0, 0, 0]
    columns: list[int] = []

    def add(part: Bytes | None, source: int) -> int:
        if part is None:
            return -1
        sources[source].append(part)
        at = ends[source]
        ends[source] += part.nbytes
        return at

    for bits, values, first_bit, offsets, levels, validity, valid_offset in pages:
        columns += (
            bits if offsets is None else -bits,
            add(values, 0),
            values.nbytes,
            first_bit,
            add(offsets, 1),
            add(None if levels is None else levels.view(np.uint8), 2),
            add(validity, 2),
            valid_offset,
        )
    # Pages that would exceed this are declined.
    out = empty_bytes(2 * sum(ends) + len(pages) * (_ROOM + _ROOM_FOR_VALUE * rows))
    found = np.empty(len(pages) * len(Found), np.int64)
    costs = np.empty(len(pages) * 2 * (ENCODINGS + 1))
    status = _native.encode_pages(
        (*map(_joined, sources), np.array(columns, np.int64)),
        (rows, int(has_large_chunks), constants),
        tuple(rules),
        out,
        found,
        costs,
    )
    written = checked(status, kernel="encode_pages")
    return PagesEncoded(
        out[:written],
        found.reshape(len(pages), len(Found)),
        costs.reshape(len(pages), ENCODINGS + 1, 2),
    )


def _joined(parts: Sequence[Bytes]) -> Bytes:
    """Return consecutive parts, without copying a single one."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NO_BYTES

"""Small page encoder by `native/src/small_pages.cpp`; `encodings/choice/choose.py` defines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.small_pages import Found, PageRules, SmallPage, SmallPages

_ROOM_FOR_VALUE: Final = 6
_ROOM: Final = 512


def encode_small_pages(
    pages: Sequence[SmallPage],
    rows: int,
    rules: PageRules,
    *,
    has_large_chunks: bool,
    constants: int,
) -> SmallPages | None:
    """Encode pages of `rows` values each with the cheapest encoding; None if unsupported."""
    parts: list[Bytes] = []
    columns: list[int] = []
    at = 0
    for bits, values, first_bit, offsets, levels, validity, valid_offset in pages:
        size = values.nbytes
        parts.append(values)
        positions = [-1, -1, -1]
        end = at + size
        for number, part in enumerate((offsets, levels, validity)):
            if part is not None:
                parts.append(part.view(np.uint8))
                positions[number] = end
                end += part.nbytes
        signed = bits if offsets is None else -bits
        columns += (signed, at, size, first_bit, *positions, valid_offset)
        at = end
    source = np.concatenate(parts)
    # Pages that would exceed this are declined.
    out = empty_bytes(2 * at + len(pages) * (_ROOM + _ROOM_FOR_VALUE * rows))
    found = np.empty(len(pages) * len(Found), np.int64)
    status = _native.encode_small_pages(
        source,
        np.array(columns, np.int64),
        rows,
        tuple(rules),
        int(has_large_chunks),
        constants,
        out,
        found,
    )
    written = checked(status, kernel="encode_small_pages")
    return SmallPages(out[:written], found.reshape(len(pages), len(Found)))

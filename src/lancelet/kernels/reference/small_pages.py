"""Small pages, as their definition: there is none, and all are encoded in the general way.

What a page becomes is defined by `encodings.choose`, which the tests compare pages with.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.kernels.small import SmallPage, SmallPages


def encode_small_pages(
    pages: Sequence[SmallPage], rows: int, *, has_large_chunks: bool, constants: int
) -> SmallPages | None:
    """Return pages of `rows` values each with what is cheapest to read, or None for none of them.

    `constants` says which pages of one value are told apart: none (0), short numbers (1), all (2).
    """
    del pages, rows, has_large_chunks, constants
    return None

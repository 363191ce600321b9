"""Asking for pages of a mapped file before they are touched, as its definition: nothing changes.

The advice shortens waiting and changes no result, so the definition is the check of the slices
and a count of zero; the native kernel may return how many times it asked.
"""

from __future__ import annotations

from lancelet.buffers import Bytes, Slices
from lancelet.kernels.arguments import check_slices


def read_ahead(slices: Slices, known: Bytes) -> int:
    """Ask the system to read what the slices cover; return how many times it was asked.

    `known` has a byte per page of 4096 bytes of the source; a page is looked at if its byte is 0,
    which the native kernel then sets to 1. Pages are looked at four at a time, as blocks of 16 KiB
    are verified.
    """
    del known
    check_slices(slices, kernel="read_ahead")
    return 0

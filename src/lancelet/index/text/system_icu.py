"""Words of any script by the ICU library of the system, for machines without the package PyICU.

    ubrk_open, ubrk_setText, ubrk_next      the places between the words of a text in UTF-16
    "hi, 世界"                              "hi" "," " " "世界"

The library's functions have its version in their names: `ubrk_next_72` of `libicuuc.so.72`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from lancelet.errors import InternalError

_WORDS: Final = 1
_DONE: Final = -1

Split = Callable[[str], Iterator[str]]
"""Yields the pieces of a text, words and what is between them."""


@cache
def system_icu() -> Split | None:
    """Return what splits texts by the library of the system, or None if there is none."""
    name = ctypes.util.find_library("icuuc")
    version = re.search(r"\d+", name.partition("icuuc")[2]) if name else None
    if name is None or version is None:
        return None
    try:
        return _Breaks(ctypes.CDLL(name), version[0]).split
    except (OSError, AttributeError):
        # The library cannot be loaded here, or is built with names of its own.
        return None


class _Breaks:
    """The functions of a library, and an iterator for each thread, as none may be shared."""

    def __init__(self, library: ctypes.CDLL, version: str) -> None:
        code, place = ctypes.POINTER(ctypes.c_int), ctypes.c_int32
        self._open = self._function(
            library, f"ubrk_open_{version}", ctypes.c_void_p,
            ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, place, code,
        )  # fmt: skip
        self._set_text = self._function(
            library, f"ubrk_setText_{version}", None, ctypes.c_void_p, ctypes.c_char_p, place, code
        )
        self._next = self._function(library, f"ubrk_next_{version}", place, ctypes.c_void_p)
        self._own = threading.local()

    @staticmethod
    def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        return function

    def split(self, text: str) -> Iterator[str]:
        """Yield the pieces of a text."""
        data = text.encode("utf-16-le", "surrogatepass")
        code = ctypes.c_int(0)
        breaks = self._iterator()
        self._set_text(breaks, data, len(data) // 2, ctypes.byref(code))
        _check(code)
        start = 0
        # All places are taken at once: the iterator serves the next text of the thread.
        for stop in list(iter(lambda: self._next(breaks), _DONE)):
            yield data[2 * start : 2 * stop].decode("utf-16-le", "surrogatepass")
            start = stop

    def _iterator(self) -> Any:
        found = getattr(self._own, "breaks", None)
        if found is None:
            code = ctypes.c_int(0)
            found = self._own.breaks = self._open(_WORDS, b"", None, 0, ctypes.byref(code))
            _check(code)
        return found


def _check(code: ctypes.c_int) -> None:
    # Codes below zero are warnings.
    if code.value > 0:
        raise InternalError("the ICU library refused a text", code=code.value)

"""The ICU library that is at hand, for its lists of words in languages without blanks.

    PyICU is installed     the library that its module is linked to
    otherwise              the library of the system, `libicuuc`

    udata_open, udata_getMemory     the bytes of "thaidict", "cjdict", ...

The library's functions have its version in their names: `udata_open_72` of `libicuuc.so.72`. Some
systems leave the lists out of the library's data and have them in a package of their own.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from lancelet.errors import StorageError

_PACKAGE: Final = "icu._icu_"
_TOTAL_SIZE: Final = 3
_HEADER_BYTES: Final = 32
_BYTES_MOST: Final = 1 << 28


@cache
def icu_library() -> Library | None:
    """Return the library, or None if there is none."""
    return next(_libraries(), None)


class Library:
    """The functions of an ICU library that give its data."""

    def __init__(self, path: str, version: str) -> None:
        """Load a library; raise OSError or AttributeError if it is none of this version."""
        self.path, self.version = path, version
        library, code = ctypes.CDLL(path), ctypes.POINTER(ctypes.c_int)
        names = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
        self._open = _function(library, f"udata_open_{version}", ctypes.c_void_p, *names, code)
        self._memory = _function(
            library, f"udata_getMemory_{version}", ctypes.c_void_p, ctypes.c_void_p
        )
        self._close = _function(library, f"udata_close_{version}", None, ctypes.c_void_p)

    def dictionary(self, name: str) -> bytes:
        """Return a list of words as the library has it."""
        package = f"icudt{self.version}{sys.byteorder[0]}-brkitr".encode()
        code = ctypes.c_int(0)
        found = self._open(package, b"dict", name.encode(), ctypes.byref(code))
        if not found:
            raise StorageError(
                "the data of the ICU library lacks a dictionary; install the library's whole "
                "data, or PyICU",
                name=name, library=self.path, version=self.version, code=code.value,
            )  # fmt: skip
        try:
            start = self._memory(found)
            header = (ctypes.c_int32 * (_HEADER_BYTES // 4)).from_address(start)
            size = header[_TOTAL_SIZE]
            if not _HEADER_BYTES <= size <= _BYTES_MOST:
                raise StorageError("a dictionary is damaged", name=name, library=self.path)
            return ctypes.string_at(start, size)
        finally:
            self._close(found)


def _libraries() -> Iterator[Library]:
    for path, version in _places():
        try:
            yield Library(path, version)
        except (OSError, AttributeError):
            # It cannot be loaded here, or is built with names of its own.
            continue


def _places() -> Iterator[tuple[str, str]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # what it imports may be deprecated
            package = importlib.import_module(_PACKAGE)
        # Functions are looked up in what a module is linked to as well.
        yield str(package.__file__), str(package.ICU_VERSION).partition(".")[0]
    except ImportError:
        pass
    name = ctypes.util.find_library("icuuc")
    version = re.search(r"\d+", name.partition("icuuc")[2]) if name else None
    if name and version:
        yield name, version[0]


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function

"""Texts of any script cut into words: the tokenizers `icu` and `icu/split`.

    icu          can't 3.14 a_b 東京都に      can't  3.14  a_b  東京  都  に
    icu/split                                 can t  3 14  a b  東京  都  に

Words end by the rules of Unicode; the class of each character is data of this package, as an
index must find what it was built of. Chinese, Japanese, Thai, Lao, Burmese and Khmer put no blanks
between words: these are looked up in the lists of the ICU library, each read when it is needed.

The ICU library that is at hand, for its lists of words in languages without blanks.

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
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.errors import StorageError, UnsupportedError
from lancelet.index.text.characters import class_ranges, letters_and_digits
from lancelet.index.text.icu_dictionary import WordTree, join_trees, read_words
from lancelet.index.text.pieces import Cutter, Pieces, places_within, texts_of
from lancelet.kernels import (
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
    complex_class,
    find_segments,
)

_NUM_CHARACTERS: Final = 0x110000
_LISTS: Final = {
    Language.THAI: "thaidict",
    Language.LAO: "laodict",
    Language.BURMESE: "burmesedict",
    Language.KHMER: "khmerdict",
    Language.CHINESE_JAPANESE: "cjdict",
}
_RULES_KEPT: Final = 4
"""The rules for so many sets of languages are kept; their words are kept anyway."""

_UNLISTED: Final = WordTree(
    np.zeros(1, np.uint16), np.zeros(1, np.int32), np.zeros(1, np.uint16), np.zeros(1, np.uint8)
)

_PACKAGE: Final = "icu._icu_"
_TOTAL_SIZE: Final = 3
_HEADER_BYTES: Final = 32
_BYTES_MOST: Final = 1 << 28


def segment_cutter(*, splits: bool) -> Cutter:
    """Return what cuts texts of any script."""
    return _Segmenter(splits=splits).cut


class _Segmenter:
    """Cuts texts; what languages it has met is remembered, as their words are read when met."""

    def __init__(self, *, splits: bool) -> None:
        self._splits = splits
        self._met: frozenset[Language] = frozenset()

    def cut(self, texts: pa.Array) -> Pieces:
        offsets, data = texts_of(texts)
        known = self._met
        while True:
            words, counts, stretches = find_segments(
                offsets, data, letters_and_digits(), _rules(known), splits=self._splits
            )
            met = known.union(language for language in _LISTS if stretches[language])
            if met == known:
                return words, places_within(counts), counts
            # Other threads may set it as well; what one of them forgets is only met again.
            self._met = known = met


@lru_cache(maxsize=_RULES_KEPT)
def _rules(languages: frozenset[Language]) -> SegmentRules:
    """Return the rules, with the words of some languages."""
    trees = [_words(name) if one in languages else _UNLISTED for one, name in _LISTS.items()]
    forest = join_trees(trees)
    return SegmentRules(
        _classes(), forest.units, forest.children, forest.num_children, forest.is_word
    )


@cache
def _words(name: str) -> WordTree:
    library = icu_library()
    if library is None:
        raise MissingPackageError(
            "texts in Chinese, Japanese, Thai, Lao, Burmese and Khmer are tokenized by "
            "dictionaries of the ICU library; install it (libicu) or the package PyICU, or choose "
            "another base_tokenizer",
            package="PyICU",
        )
    return read_words(library.dictionary(name))


@cache
def _classes() -> Bytes:
    """Return the class of each character."""
    classes = np.zeros(_NUM_CHARACTERS, np.uint8)
    for name, ranges in class_ranges():
        language, _, part = name.partition("+")
        number = (
            complex_class(Language[language], ClusterPart[part])
            if part
            else CharacterClass[name].value
        )
        for first, last in ranges:
            classes[first : last + 1] = number
    return classes


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


class MissingPackageError(UnsupportedError, OSError):
    """A package that knows the words of a language is not installed."""


class UnreadableModelError(StorageError, ValueError):
    """The files of a model are missing or damaged.

    pylance raises OSError when an index is built, and ValueError when a text is cut.
    """


def package_of_words(name: str, install: str, what: str) -> Any:
    """Return a package; raise an error that says which texts need it if it is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # what it imports may be deprecated
            return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} are tokenized by the package {install}; install it, or choose another "
            "base_tokenizer",
            package=install,
        ) from error

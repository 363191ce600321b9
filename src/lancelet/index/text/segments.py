"""The tokenizers `icu` and `icu/split`, which split texts of any script into words.

    icu          can't 3.14 a_b 東京都に      can't  3.14  a_b  東京  都  に
    icu/split                                 can t  3 14  a b  東京  都  に

Word boundaries follow the Unicode rules, with character classes from the tables of this package, so
queries are split like the texts at build time. Chinese, Japanese, Thai, Lao, Burmese and Khmer are
written without spaces and use the dictionaries of the ICU library, which are loaded on demand.
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
from lancelet.index.kernels import (
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
    complex_class,
    find_segments,
)
from lancelet.index.text.characters import class_ranges, letters_and_digits
from lancelet.index.text.icu_dictionary import WordTree, join_trees, read_dictionary
from lancelet.index.text.tokenizer_base import (
    RawTokens,
    Tokenizer,
    positions_in_groups,
    text_buffers,
)

_NUM_CHARACTERS: Final = 0x110000
_DICTIONARIES: Final = {
    Language.THAI: "thaidict",
    Language.LAO: "laodict",
    Language.BURMESE: "burmesedict",
    Language.KHMER: "khmerdict",
    Language.CHINESE_JAPANESE: "cjdict",
}
_RULES_CACHED: Final = 4
"""Number of language sets whose rules are cached. Dictionaries are always cached."""

_EMPTY_TREE: Final = WordTree(
    np.zeros(1, np.uint16), np.zeros(1, np.int32), np.zeros(1, np.uint16), np.zeros(1, np.uint8)
)

_PACKAGE: Final = "icu._icu_"
_TOTAL_SIZE: Final = 3
_HEADER_BYTES: Final = 32
_BYTES_MAX: Final = 1 << 28


def make_segment_tokenizer(*, splits: bool) -> Tokenizer:
    """Return the tokenizer for texts of any script."""
    return _Segmenter(splits=splits).tokenize


class _Segmenter:
    """Splits texts into words. Remembers the languages seen, to load their dictionaries once."""

    def __init__(self, *, splits: bool) -> None:
        self._splits = splits
        self._languages: frozenset[Language] = frozenset()

    def tokenize(self, texts: pa.Array) -> RawTokens:
        offsets, data = text_buffers(texts)
        languages = self._languages
        while True:
            raw_tokens, counts, num_runs = find_segments(
                offsets, data, letters_and_digits(), _rules(languages), splits=self._splits
            )
            seen = languages.union(language for language in _DICTIONARIES if num_runs[language])
            if seen == languages:
                return raw_tokens, positions_in_groups(counts), counts
            # Concurrent updates may lose a language, which is then detected again.
            self._languages = languages = seen


@lru_cache(maxsize=_RULES_CACHED)
def _rules(languages: frozenset[Language]) -> SegmentRules:
    """Return the rules with the dictionaries of some languages."""
    trees = [
        _read_dictionary(name) if language in languages else _EMPTY_TREE
        for language, name in _DICTIONARIES.items()
    ]
    forest = join_trees(trees)
    return SegmentRules(
        _classes(), forest.units, forest.children, forest.num_children, forest.is_word
    )


@cache
def _read_dictionary(name: str) -> WordTree:
    library = icu_library()
    if library is None:
        raise MissingPackageError(
            "texts in Chinese, Japanese, Thai, Lao, Burmese and Khmer are tokenized with "
            "dictionaries of the ICU library; install it (libicu) or the package PyICU, or "
            "choose another base_tokenizer",
            package="PyICU",
        )
    return read_dictionary(library.dictionary(name))


@cache
def _classes() -> Bytes:
    """Return the word break class of each character."""
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
    """Return the library linked by PyICU, else the system library `libicuuc`, else None."""
    return next(_libraries(), None)


class Library:
    """The data functions of an ICU library, which read dictionaries ("thaidict", "cjdict", ...).

    Function names contain the version of the library: `udata_open_72` of `libicuuc.so.72`. Some
    systems ship the dictionaries in a separate package.
    """

    def __init__(self, path: str, version: str) -> None:
        """Load a library. Raise OSError or AttributeError if it does not have this version."""
        self.path, self.version = path, version
        library, code = ctypes.CDLL(path), ctypes.POINTER(ctypes.c_int)
        names = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
        self._open = _function(library, f"udata_open_{version}", ctypes.c_void_p, *names, code)
        self._memory = _function(
            library, f"udata_getMemory_{version}", ctypes.c_void_p, ctypes.c_void_p
        )
        self._close = _function(library, f"udata_close_{version}", None, ctypes.c_void_p)

    def dictionary(self, name: str) -> bytes:
        """Return the bytes of a dictionary."""
        package = f"icudt{self.version}{sys.byteorder[0]}-brkitr".encode()
        code = ctypes.c_int(0)
        handle = self._open(package, b"dict", name.encode(), ctypes.byref(code))
        if not handle:
            raise StorageError(
                "the ICU library lacks a dictionary; install the full data of the library, or "
                "PyICU",
                name=name, library=self.path, version=self.version, code=code.value,
            )  # fmt: skip
        try:
            start = self._memory(handle)
            header = (ctypes.c_int32 * (_HEADER_BYTES // 4)).from_address(start)
            size = header[_TOTAL_SIZE]
            if not _HEADER_BYTES <= size <= _BYTES_MAX:
                raise StorageError("damaged ICU dictionary", name=name, library=self.path)
            return ctypes.string_at(start, size)
        finally:
            self._close(handle)


def _libraries() -> Iterator[Library]:
    for path, version in _library_paths():
        try:
            yield Library(path, version)
        except (OSError, AttributeError):
            # The library cannot be loaded, or was built with other function names.
            continue


def _library_paths() -> Iterator[tuple[str, str]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # imported modules may be deprecated
            package = importlib.import_module(_PACKAGE)
        # Symbols are also resolved in the libraries linked by a module.
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
    """The tokenizer package for a language is not installed."""


class UnreadableModelError(StorageError, ValueError):
    """The files of a language model are missing or damaged.

    pylance raises OSError when an index is built, and ValueError when a text is tokenized.
    """


def import_tokenizer_package(name: str, install: str, what: str) -> Any:
    """Import a tokenizer package. Raise if it is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # imported modules may be deprecated
            return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} are tokenized with the package {install}; install it, or choose another "
            "base_tokenizer",
            package=install,
        ) from error

"""Cutting texts in languages that put no blanks between words, by packages that know the words.

    jieba/<model>      Chinese, the package jieba       <home>/jieba/<model>/dict.txt
    lindera/<model>    Japanese and Korean, lindera     <home>/lindera/<model>/config.yml
    icu, icu/split     any script, PyICU or ICU itself  words by the rules of Unicode

`LANCE_LANGUAGE_MODEL_HOME` says where the models are; `~/.local/share/lance/language_models` is
where they are otherwise. The packages are optional, and a model is loaded once.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Slices
from lancelet.errors import InvalidInputError, StorageError, UnsupportedError
from lancelet.index.text.characters import letters_and_digits
from lancelet.index.text.pieces import Cutter, Pieces
from lancelet.index.text.system_icu import system_icu

HOME_VARIABLE: Final = "LANCE_LANGUAGE_MODEL_HOME"
_DEFAULT_HOME: Final = "lance/language_models"

Words = Callable[[str], Iterator[tuple[str, int]]]
"""Yields the words of a text, and the position of each."""


class MissingPackageError(UnsupportedError, OSError):
    """A package that knows the words of a language is not installed."""


def model_cutter(name: str) -> Cutter:
    """Return what cuts texts by a model; raise if its package or its files are missing."""
    kind, _, model = name.partition("/")
    match kind:
        case "jieba":
            return partial(_cut, _jieba(_folder(kind, model or "default")))
        case "lindera" if model:
            return partial(_cut, _lindera(_folder(kind, model)))
        case "icu" if model in ("", "split"):
            return partial(_cut, _icu(splits=bool(model)))
        case _:
            raise InvalidInputError(f"unknown base tokenizer {name}")


def _cut(words: Words, texts: pa.Array) -> Pieces:
    """Cut texts one by one; the words are put into bytes of their own."""
    pieces: list[bytes] = []
    positions: list[int] = []
    counts: list[int] = []
    for text in texts.to_pylist():
        before = len(pieces)
        for word, position in words(text or ""):
            pieces.append(word.encode())
            positions.append(position)
        counts.append(len(pieces) - before)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    source = np.frombuffer(b"".join(pieces), np.uint8)
    found = Slices(source, np.cumsum(sizes) - sizes, sizes)
    return found, np.array(positions, np.uint32), np.array(counts, np.int64)


def language_model_home() -> str:
    """Return the folder that has the models."""
    shared = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return str(os.environ.get(HOME_VARIABLE) or Path(shared, _DEFAULT_HOME))


def _folder(kind: str, model: str) -> str:
    folder = Path(language_model_home(), kind, model)
    if not folder.is_dir():
        raise InvalidInputError(f"Invalid directory path: {folder}", variable=HOME_VARIABLE)
    return str(folder)


def _package(name: str, install: str, what: str) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # what it imports may be deprecated
            return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} are cut into words by the package {install}; install it, or choose another "
            "base_tokenizer",
            package=install,
        ) from error


def _jieba(folder: str) -> Words:
    config = _read_config(Path(folder, "config.json"))
    names: list[str] = [config.get("main") or "dict.txt", *(config.get("users") or [])]
    paths = tuple(str(Path(folder, name).resolve()) for name in names)
    for path in paths:
        if not Path(path).is_file():
            raise StorageError("a dictionary of words is missing", path=path)
    return _jieba_of(paths)


@cache
def _jieba_of(paths: tuple[str, ...]) -> Words:
    """Return what knows the words of dictionaries; those of the first are enough for most."""
    package = _package("jieba", "jieba", "Chinese texts")
    package.setLogLevel("WARNING")
    tokenizer = package.Tokenizer(dictionary=paths[0])
    try:
        tokenizer.initialize()
        for path in paths[1:]:
            with Path(path).open("rb") as file:
                tokenizer.load_userdict(file)
    except ValueError as error:
        raise StorageError("a dictionary of words cannot be read", paths=paths) from error

    def words(text: str) -> Iterator[tuple[str, int]]:
        for word, start, _ in tokenizer.tokenize(text, mode="search", HMM=True):
            yield word, start

    return words


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StorageError("a configuration cannot be read", path=str(path)) from error
    if not isinstance(found, dict):
        raise StorageError("a configuration cannot be read", path=str(path))
    return found


def _lindera(folder: str) -> Words:
    package = _package("lindera", "lindera", "Japanese and Korean texts")
    path = Path(folder, "config.yml")
    try:
        builder = package.TokenizerBuilder()
        if path.exists():
            builder = builder.from_file(str(path))
        tokenizer = builder.build()
    except (ValueError, OSError, RuntimeError) as error:
        raise StorageError("a model cannot be loaded", path=str(path), found=str(error)) from error

    def words(text: str) -> Iterator[tuple[str, int]]:
        for token in tokenizer.tokenize(text):
            yield token.surface, token.position

    return words


@cache
def _icu(*, splits: bool) -> Words:
    split = _splitter()

    def words(text: str) -> Iterator[tuple[str, int]]:
        position = 0
        for word in split(text):
            # Newer rules of Unicode keep addresses of mail whole; those of the reference do not.
            for part in _runs(word) if splits else word.split("@"):
                if any(map(_is_member, part)):
                    yield part, position
                    position += 1

    return words


def _splitter() -> Callable[[str], Iterator[str]]:
    """Return what splits texts: the package if it is installed, or the system's library."""
    found = None if _is_installed("icu") else system_icu()
    if found is not None:
        return found
    return partial(_split_by_package, _package("icu", "PyICU", "texts of any script"))


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _split_by_package(package: Any, text: str) -> Iterator[str]:
    breaks = package.BreakIterator.createWordInstance(package.Locale.getRoot())
    written = package.UnicodeString(text)
    breaks.setText(written)
    start = 0
    for stop in breaks:
        yield str(written[start:stop])
        start = stop


def _runs(word: str) -> list[str]:
    return "".join(letter if _is_member(letter) else " " for letter in word).split()


def _is_member(letter: str) -> bool:
    """Return whether words of the `simple` tokenizer may have a letter."""
    code = ord(letter)
    return bool(letters_and_digits()[code >> 3] >> (code & 7) & 1)

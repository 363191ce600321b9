"""Cutting texts in languages that put no blanks between words, by packages that know the words.

    jieba/<model>      Chinese, the package jieba       <home>/jieba/<model>/dict.txt
    lindera/<model>    Japanese and Korean, lindera     <home>/lindera/<model>/config.yml, which
                                                        says where the dictionary is
    icu, icu/split     any script                       see `segments`

`LANCE_LANGUAGE_MODEL_HOME` says where the models are; `~/.local/share/lance/language_models` is
where they are otherwise; pylance has them there, and a model serves both. The packages are
optional, and a dictionary of jieba is loaded once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Slices
from lancelet.errors import InvalidInputError
from lancelet.index.text.pieces import Cutter, Pieces, texts_of
from lancelet.index.text.segments import UnreadableModelError, package_of_words, segment_cutter

HOME_VARIABLE: Final = "LANCE_LANGUAGE_MODEL_HOME"
_DEFAULT_HOME: Final = "lance/language_models"

Words = Callable[[str], Iterator[tuple[str, int, int]]]
"""Yields the words of a text, the position of each, and in which byte of the text it begins."""


def model_cutter(name: str) -> Cutter:
    """Return what cuts texts by a model; raise if its package or its files are missing."""
    kind, _, model = name.partition("/")
    match kind:
        case "jieba":
            return partial(_cut, _jieba(_folder(kind, model or "default")))
        case "lindera" if model:
            return partial(_cut, _lindera(_folder(kind, model)))
        case "icu" if model in ("", "split"):
            return segment_cutter(splits=bool(model))
        case _:
            raise InvalidInputError(f"unknown base tokenizer {name}")


def _cut(words: Words, texts: pa.Array) -> Pieces:
    """Cut texts one by one; words that a model has changed are put behind the texts."""
    offsets, data = texts_of(texts)
    data = data[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    source = bytearray(data)
    starts: list[int] = []
    sizes: list[int] = []
    positions: list[int] = []
    counts: list[int] = []
    for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        before = len(starts)
        for word, position, start in words(source[first:last].decode()):
            piece = word.encode()
            at = first + start
            if source[at : at + len(piece)] != piece:
                at = len(source)
                source += piece
            starts.append(at)
            sizes.append(len(piece))
            positions.append(position)
        counts.append(len(starts) - before)
    found = np.frombuffer(bytes(source), np.uint8) if len(source) > len(data) else data
    pieces = Slices(found, np.array(starts, np.int64), np.array(sizes, np.int64))
    return pieces, np.array(positions, np.uint32), np.array(counts, np.int64)


def language_model_home() -> str:
    """Return the folder that has the models."""
    shared = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return str(os.environ.get(HOME_VARIABLE) or Path(shared, _DEFAULT_HOME))


def _folder(kind: str, model: str) -> str:
    folder = Path(language_model_home(), kind, model)
    if not folder.is_dir():
        raise InvalidInputError(f"Invalid directory path: {folder}", variable=HOME_VARIABLE)
    return str(folder)


def _jieba(folder: str) -> Words:
    config = _read_config(Path(folder, "config.json"))
    names: list[str] = [config.get("main") or "dict.txt", *(config.get("users") or [])]
    paths = tuple(str(Path(folder, name).resolve()) for name in names)
    for path in paths:
        if not Path(path).is_file():
            raise UnreadableModelError("a tokenizer dictionary is missing", path=path)
    return _jieba_of(paths)


@cache
def _jieba_of(paths: tuple[str, ...]) -> Words:
    """Return what knows the words of dictionaries; those of the first are enough for most."""
    package = package_of_words("jieba", "jieba", "Chinese texts")
    package.setLogLevel("WARNING")
    tokenizer = package.Tokenizer(dictionary=paths[0])
    try:
        tokenizer.initialize()
        for path in paths[1:]:
            with Path(path).open("rb") as file:
                tokenizer.load_userdict(file)
    except ValueError as error:
        raise UnreadableModelError("a tokenizer dictionary cannot be read", paths=paths) from error

    def words(text: str) -> Iterator[tuple[str, int, int]]:
        bytes_before = [0, *accumulate(len(letter.encode()) for letter in text)]
        for word, start, _ in tokenizer.tokenize(text, mode="search", HMM=True):
            yield word, start, bytes_before[start]

    return words


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableModelError("a configuration cannot be read", path=str(path)) from error
    if not isinstance(found, dict):
        raise UnreadableModelError("a configuration cannot be read", path=str(path))
    return found


def _lindera(folder: str) -> Words:
    package = package_of_words("lindera", "lindera-python", "Japanese and Korean texts")
    path = Path(folder, "config.yml")
    try:
        builder = package.TokenizerBuilder()
        if path.exists():
            builder = builder.from_file(str(path))
        tokenizer = builder.build()
    except (ValueError, OSError, RuntimeError) as error:
        raise UnreadableModelError(
            "a model cannot be loaded by the release of lindera that is installed; models of "
            "format 1, as pylance has them, are read by lindera-python 3.0.7 to 4, and those of "
            "format 2 by lindera 6",
            path=str(path), release=package.version(), found=str(error),
        ) from error  # fmt: skip

    def words(text: str) -> Iterator[tuple[str, int, int]]:
        for token in tokenizer.tokenize(text):
            yield token.surface, token.position, token.byte_start

    return words

"""Dictionary-based tokenizers for languages written without spaces.

    jieba/<model>      Chinese, package jieba           <home>/jieba/<model>/dict.txt
    lindera/<model>    Japanese and Korean, lindera     <home>/lindera/<model>/config.yml, with the
                                                        path of the dictionary
    icu, icu/split     any script                       see `segments`

`LANCE_LANGUAGE_MODEL_HOME` is the folder of the models, by default
`~/.local/share/lance/language_models` as in pylance, so models can be shared. The packages are
optional. Dictionaries of jieba are loaded once.
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

from lancelet.buffers import ByteSlices
from lancelet.errors import InvalidInputError
from lancelet.index.text.segments import (
    UnreadableModelError,
    import_tokenizer_package,
    make_segment_tokenizer,
)
from lancelet.index.text.tokenizer_base import RawTokens, Tokenizer, text_buffers

HOME_VARIABLE: Final = "LANCE_LANGUAGE_MODEL_HOME"
_DEFAULT_HOME: Final = "lance/language_models"

TokenizeText = Callable[[str], Iterator[tuple[str, int, int]]]
"""Yields the tokens of a text with their positions and byte offsets."""


def make_model_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a model. Raise if its package or its files are missing."""
    kind, _, model = name.partition("/")
    match kind:
        case "jieba":
            return partial(_tokenize, _jieba(_folder(kind, model or "default")))
        case "lindera" if model:
            return partial(_tokenize, _lindera(_folder(kind, model)))
        case "icu" if model in ("", "split"):
            return make_segment_tokenizer(splits=bool(model))
        case _:
            raise InvalidInputError(f"unknown base tokenizer {name}")


def _tokenize(tokenize_text: TokenizeText, texts: pa.Array) -> RawTokens:
    """Tokenize texts one by one. Tokens changed by a model are appended to the text buffer."""
    offsets, data = text_buffers(texts)
    data = data[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    source = bytearray(data)
    starts: list[int] = []
    sizes: list[int] = []
    positions: list[int] = []
    counts: list[int] = []
    for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        num_before = len(starts)
        for word, position, start in tokenize_text(source[first:last].decode()):
            token = word.encode()
            token_start = first + start
            if source[token_start : token_start + len(token)] != token:
                token_start = len(source)
                source += token
            starts.append(token_start)
            sizes.append(len(token))
            positions.append(position)
        counts.append(len(starts) - num_before)
    buffer = np.frombuffer(bytes(source), np.uint8) if len(source) > len(data) else data
    raw_tokens = ByteSlices(buffer, np.array(starts, np.int64), np.array(sizes, np.int64))
    return raw_tokens, np.array(positions, np.uint32), np.array(counts, np.int64)


def language_model_home() -> str:
    """Return the folder of the language models."""
    shared = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return str(os.environ.get(HOME_VARIABLE) or Path(shared, _DEFAULT_HOME))


def _folder(kind: str, model: str) -> str:
    folder = Path(language_model_home(), kind, model)
    if not folder.is_dir():
        raise InvalidInputError(f"Invalid directory path: {folder}", variable=HOME_VARIABLE)
    return str(folder)


def _jieba(folder: str) -> TokenizeText:
    config = _read_config(Path(folder, "config.json"))
    names: list[str] = [config.get("main") or "dict.txt", *(config.get("users") or [])]
    paths = tuple(str(Path(folder, name).resolve()) for name in names)
    for path in paths:
        if not Path(path).is_file():
            raise UnreadableModelError("missing tokenizer dictionary", path=path)
    return _load_jieba(paths)


@cache
def _load_jieba(paths: tuple[str, ...]) -> TokenizeText:
    """Load a jieba tokenizer from a main dictionary and optional user dictionaries."""
    package = import_tokenizer_package("jieba", "jieba", "Chinese texts")
    package.setLogLevel("WARNING")
    tokenizer = package.Tokenizer(dictionary=paths[0])
    try:
        tokenizer.initialize()
        for path in paths[1:]:
            with Path(path).open("rb") as file:
                tokenizer.load_userdict(file)
    except ValueError as error:
        raise UnreadableModelError("invalid tokenizer dictionary", paths=paths) from error

    def tokenize_text(text: str) -> Iterator[tuple[str, int, int]]:
        bytes_before = [0, *accumulate(len(letter.encode()) for letter in text)]
        for word, start, _ in tokenizer.tokenize(text, mode="search", HMM=True):
            yield word, start, bytes_before[start]

    return tokenize_text


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableModelError("invalid tokenizer configuration", path=str(path)) from error
    if not isinstance(config, dict):
        raise UnreadableModelError("invalid tokenizer configuration", path=str(path))
    return config


def _lindera(folder: str) -> TokenizeText:
    package = import_tokenizer_package("lindera", "lindera-python", "Japanese and Korean texts")
    path = Path(folder, "config.yml")
    try:
        builder = package.TokenizerBuilder()
        if path.exists():
            builder = builder.from_file(str(path))
        tokenizer = builder.build()
    except (ValueError, OSError, RuntimeError) as error:
        raise UnreadableModelError(
            "the installed release of lindera cannot load the model; models of format 1, as "
            "used by pylance, require lindera-python 3.0.7 to 4, and models of format 2 require "
            "lindera 6",
            path=str(path), release=package.version(), found=str(error),
        ) from error  # fmt: skip

    def tokenize_text(text: str) -> Iterator[tuple[str, int, int]]:
        for token in tokenizer.tokenize(text):
            yield token.surface, token.position, token.byte_start

    return tokenize_text

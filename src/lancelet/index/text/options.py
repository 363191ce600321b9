"""Options of text analysis, and their stored form.

For example:

    TextOptions(language="French", stem=True)      params of the files, details of the metadata
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Final

from lancelet.arguments import flag, text, texts, whole_number
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.values import dataclass

LANGUAGES: Final = (
    "Arabic",
    "Danish",
    "Dutch",
    "English",
    "Finnish",
    "French",
    "German",
    "Greek",
    "Hungarian",
    "Italian",
    "Norwegian",
    "Portuguese",
    "Romanian",
    "Russian",
    "Spanish",
    "Swedish",
    "Tamil",
    "Turkish",
)
TOKENIZERS: Final = ("simple", "whitespace", "raw", "ngram", "code", "icu", "icu/split")
_MODELS: Final = ("jieba", "lindera")
_CODE_FLAGS: Final = (
    "split_identifiers",
    "split_on_numerics",
    "preserve_original",
    "index_operators",
)
_UNFILTERED_TOKENIZERS: Final = ("ngram", "code")
"""Tokenizers without stemming and stop word removal by default."""
_CHECKS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    **dict.fromkeys(("analyzer", "base_tokenizer", "language"), text),
    **dict.fromkeys(_CODE_FLAGS, flag),
    **dict.fromkeys(("lower_case", "stem", "remove_stop_words", "ascii_folding"), flag),
    **dict.fromkeys(("with_position", "prefix_only"), flag),
    **dict.fromkeys(("max_token_length", "block_size"), whole_number),
    **dict.fromkeys(("min_ngram_length", "max_ngram_length"), partial(whole_number, bits=32)),
    "custom_stop_words": texts,
}
"""Type check of each option."""


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Options of the tokenizer and the token filters.

    Attributes:
        lance_tokenizer: The content of the column: `text`, or `json` for documents.
        base_tokenizer: The tokenizer that splits texts.
        language: The language for stemming and stop words.
        with_position: Whether the index stores token positions, which phrase queries require.
        max_token_length: Tokens with at least this number of bytes are removed; None for no limit.
        lower_case: Whether tokens are converted to lower case.
        stem: Whether tokens are stemmed.
        remove_stop_words: Whether stop words are removed.
        custom_stop_words: Stop words that replace those of the language.
        ascii_folding: Whether tokens are folded to ASCII.
        min_ngram_length: The minimum number of characters of an n-gram.
        max_ngram_length: The maximum number of characters of an n-gram.
        prefix_only: Whether only n-grams at the start of a text are indexed.
        block_size: The number of documents per posting block.
        split_identifiers: Whether parts of identifiers are indexed.
        split_on_numerics: Whether identifiers are also split between letters and digits.
        preserve_original: Whether split identifiers are also indexed as a whole.
        index_operators: Whether operators are indexed.
    """

    lance_tokenizer: str = "text"
    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    block_size: int = 128
    split_identifiers: bool = False
    split_on_numerics: bool = False
    preserve_original: bool = False
    index_operators: bool = False

    def __post_init__(self) -> None:
        """Raise for invalid or inconsistent options."""
        base = self.base_tokenizer
        if base not in TOKENIZERS and base.split("/")[0] not in _MODELS:
            raise InvalidInputError(
                f"unknown base tokenizer {base}", expected=[*TOKENIZERS, "jieba/...", "lindera/..."]
            )
        if self.language not in LANGUAGES:
            raise InvalidInputError(
                "unknown language in text index options",
                found=self.language,
                expected=list(LANGUAGES),
            )
        if not 0 < self.min_ngram_length <= self.max_ngram_length:
            raise InvalidInputError(
                "n-gram lengths must satisfy 0 < min_ngram_length <= max_ngram_length",
                min_ngram_length=self.min_ngram_length,
                max_ngram_length=self.max_ngram_length,
            )
        if self.block_size not in (128, 256):
            raise InvalidInputError("block_size must be 128 or 256", found=self.block_size)
        if base != "code" and any(getattr(self, name) for name in _CODE_FLAGS):
            raise InvalidInputError(
                "code analyzer flags require analyzer='code'",
                base_tokenizer=base,
                flags=[name for name in _CODE_FLAGS if getattr(self, name)],
            )
        if self.lance_tokenizer not in ("text", "json"):
            raise UnsupportedError(
                "unknown lance_tokenizer; expected 'text' or 'json'", found=self.lance_tokenizer
            )

    @staticmethod
    def from_params(params: Mapping[str, Any]) -> TextOptions:
        """Return options from values by name. Missing values and None stand for the default."""
        names = {field.name for field in fields(TextOptions)}
        values = {name: value for name, value in params.items() if name in names}
        base = _base_tokenizer(params.get("analyzer"), values.get("base_tokenizer"))
        values["base_tokenizer"] = base
        defaults: dict[str, Any] = {}
        if base in _UNFILTERED_TOKENIZERS:
            defaults = {"stem": False, "remove_stop_words": False}
        if base == "code":
            defaults |= {"split_on_numerics": True, "preserve_original": True}
        for name, value in defaults.items():
            if values.get(name) is None:
                values[name] = value
        arguments = {
            name: value
            for name, value in values.items()
            if value is not None or name in ("max_token_length", "custom_stop_words")
        }
        if arguments.get("custom_stop_words") is not None:
            arguments["custom_stop_words"] = tuple(arguments["custom_stop_words"])
        if isinstance(arguments.get("language"), str):
            arguments["language"] = arguments["language"].capitalize()
        return TextOptions(**arguments)

    @staticmethod
    def from_arguments(arguments: Mapping[str, Any]) -> TextOptions:
        """Return options from user arguments after checking their types."""
        values = {name: value for name, value in arguments.items() if value is not None}
        checked = {
            name: _CHECKS[name](name, values[name]) for name in values.keys() & _CHECKS.keys()
        }
        return TextOptions.from_params({**arguments, **checked})

    @staticmethod
    def parse(params: str) -> TextOptions:
        """Parse the options stored in the files of an index."""
        return TextOptions.from_params(json.loads(params))

    def render(self) -> str:
        """Return the options in the form stored in the files of an index."""
        return json.dumps(self.as_params(), separators=(",", ":"), ensure_ascii=False)

    def as_params(self) -> dict[str, Any]:
        """Return the options as a dictionary."""
        params = asdict(self)
        if self.custom_stop_words is not None:
            params["custom_stop_words"] = list(self.custom_stop_words)
        return params


def _base_tokenizer(analyzer: str | None, base: str | None) -> str:
    """Return the base tokenizer for a pair of `analyzer` and `base_tokenizer`."""
    match analyzer, base:
        case None, _:
            return base or "simple"
        case "code", None | "code":
            return "code"
        case "code", _:
            raise InvalidInputError(f"analyzer='code' requires base_tokenizer='code', got {base!r}")
        case "text", "code":
            raise InvalidInputError("base_tokenizer='code' requires analyzer='code'")
        case "text", _:
            return base or "simple"
        case _:
            raise InvalidInputError(f"unknown analyzer {analyzer!r}, expected 'text' or 'code'")

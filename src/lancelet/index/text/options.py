"""How texts become tokens: what a caller may choose, and how it is kept with an index.

TextOptions(language="French", stem=True)      params of the files, details of the metadata
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Final

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.arguments import flag, text, texts, whole_number
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
_WHOLE_WORDS: Final = ("ngram", "code")
"""Tokenizers whose tokens are neither stemmed nor left out unless asked for."""
_CHECKS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    **dict.fromkeys(("analyzer", "base_tokenizer", "language"), text),
    **dict.fromkeys(_CODE_FLAGS, flag),
    **dict.fromkeys(("lower_case", "stem", "remove_stop_words", "ascii_folding"), flag),
    **dict.fromkeys(("with_position", "prefix_only"), flag),
    **dict.fromkeys(("max_token_length", "block_size"), whole_number),
    **dict.fromkeys(("min_ngram_length", "max_ngram_length"), partial(whole_number, bits=32)),
    "custom_stop_words": texts,
}
"""What a caller must give for each option."""


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How texts are cut into tokens, and what is done with each.

    Attributes:
        lance_tokenizer: What the column holds: `text`, or `json` for documents.
        base_tokenizer: How texts are cut.
        language: Whose endings and stop words are meant.
        with_position: Whether an index keeps where tokens stand, as phrases need.
        max_token_length: Tokens of so many bytes or more are left out; None for no limit.
        lower_case: Whether upper and lower case are one.
        stem: Whether endings are taken off.
        remove_stop_words: Whether words that say nothing are left out.
        custom_stop_words: Words to leave out in place of those of the language.
        ascii_folding: Whether letters with marks become plain ones.
        min_ngram_length: The fewest characters of an n-gram.
        max_ngram_length: The most characters of an n-gram.
        prefix_only: Whether only n-grams at the beginning of a text count.
        block_size: How many documents a block of a posting list has.
        split_identifiers: Whether the parts of names in programs are tokens too.
        split_on_numerics: Whether digits are parts of their own.
        preserve_original: Whether a name that was cut is a token as well.
        index_operators: Whether operators of programs are tokens.
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
        """Refuse what means nothing."""
        base = self.base_tokenizer
        if base not in TOKENIZERS and base.split("/")[0] not in _MODELS:
            raise InvalidInputError(
                f"unknown base tokenizer {base}", known=[*TOKENIZERS, "jieba/...", "lindera/..."]
            )
        if self.language not in LANGUAGES:
            raise InvalidInputError(
                "unknown language of a text index", found=self.language, known=list(LANGUAGES)
            )
        if not 0 < self.min_ngram_length <= self.max_ngram_length:
            raise InvalidInputError(
                "n-grams need 0 < min_ngram_length <= max_ngram_length",
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
            raise UnsupportedError("unknown tokenizer of documents", found=self.lance_tokenizer)

    @staticmethod
    def of(given: Mapping[str, Any]) -> TextOptions:
        """Return the options of arguments by name; what is missing or None has its default."""
        known = {field.name for field in fields(TextOptions)}
        own = {name: value for name, value in given.items() if name in known}
        base = _base_tokenizer(given.get("analyzer"), own.get("base_tokenizer"))
        own["base_tokenizer"] = base
        defaults: dict[str, Any] = {}
        if base in _WHOLE_WORDS:
            defaults = {"stem": False, "remove_stop_words": False}
        if base == "code":
            defaults |= {"split_on_numerics": True, "preserve_original": True}
        for name, value in defaults.items():
            if own.get(name) is None:
                own[name] = value
        kept = {
            name: value
            for name, value in own.items()
            if value is not None or name in ("max_token_length", "custom_stop_words")
        }
        if kept.get("custom_stop_words") is not None:
            kept["custom_stop_words"] = tuple(kept["custom_stop_words"])
        if isinstance(kept.get("language"), str):
            kept["language"] = kept["language"].capitalize()
        return TextOptions(**kept)

    @staticmethod
    def asked(given: Mapping[str, Any]) -> TextOptions:
        """Return the options that a caller asks for, of which each must have its type."""
        own = {name: value for name, value in given.items() if value is not None}
        checked = {name: _CHECKS[name](name, own[name]) for name in own.keys() & _CHECKS.keys()}
        return TextOptions.of({**given, **checked})

    @staticmethod
    def parse(params: str) -> TextOptions:
        """Return the options that the files of an index keep."""
        return TextOptions.of(json.loads(params))

    def render(self) -> str:
        """Return the options as the files of an index keep them."""
        return json.dumps(self.as_params(), separators=(",", ":"), ensure_ascii=False)

    def as_params(self) -> dict[str, Any]:
        """Return the options by name."""
        params = asdict(self)
        if self.custom_stop_words is not None:
            params["custom_stop_words"] = list(self.custom_stop_words)
        return params


def _base_tokenizer(analyzer: str | None, base: str | None) -> str:
    """Return what cuts texts, given the two names that it may go by."""
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

"""Tokenization of a single text, for testing the options of a text index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lancelet.index.text.analyzer import TextAnalyzer, Token
from lancelet.index.text.options import TextOptions

FtsToken = Token
"""A token, under the name used by pylance."""

_DEFAULT: Any = object()


def tokenize(
    query: str,
    *,
    analyzer: str | None = None,
    base_tokenizer: str | None = None,
    language: str | None = None,
    max_token_length: int | None = _DEFAULT,
    lower_case: bool | None = None,
    stem: bool | None = None,
    remove_stop_words: bool | None = None,
    custom_stop_words: Sequence[str] | None = None,
    ascii_folding: bool | None = None,
    min_ngram_length: int | None = None,
    max_ngram_length: int | None = None,
    prefix_only: bool | None = None,
    split_identifiers: bool | None = None,
    split_on_numerics: bool | None = None,
    preserve_original: bool | None = None,
    index_operators: bool | None = None,
) -> list[FtsToken]:
    """Return the tokens of a text; see `TextOptions` for the options.

    `analyzer` is `text` or `code`, an alias of the tokenizers `simple` and `code`.

    Examples:
        >>> [token.text for token in tokenize("The foxes run")]
        ['fox', 'run']
    """
    options = {
        "analyzer": analyzer,
        "base_tokenizer": base_tokenizer,
        "language": language,
        "lower_case": lower_case,
        "stem": stem,
        "remove_stop_words": remove_stop_words,
        "custom_stop_words": custom_stop_words,
        "ascii_folding": ascii_folding,
        "min_ngram_length": min_ngram_length,
        "max_ngram_length": max_ngram_length,
        "prefix_only": prefix_only,
        "split_identifiers": split_identifiers,
        "split_on_numerics": split_on_numerics,
        "preserve_original": preserve_original,
        "index_operators": index_operators,
    }
    arguments: dict[str, Any] = {
        name: value for name, value in options.items() if value is not None
    }
    if max_token_length is not _DEFAULT:
        arguments["max_token_length"] = max_token_length
    return TextAnalyzer(TextOptions.from_arguments(arguments)).tokens(query)

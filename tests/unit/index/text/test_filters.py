"""Token filters match the reference for every tokenizer."""

import lance
import pytest

from lancelet.index.text.analyzer import token_filter
from lancelet.index.text.options import TextOptions


@pytest.mark.parametrize("word", ["dog", "die", "sale", "unseren", "von", "the", "der", "los"])
def test_ambiguous_stop_words_are_retained_if_the_language_is_unknown(word: str) -> None:
    options = {"base_tokenizer": "icu", "stem": False, "language": "Danish"}
    theirs = [token.text for token in lance.tokenize(word, **options)]
    ours = token_filter(TextOptions.from_params(options))(word)
    assert ([] if ours is None else [ours]) == theirs


@pytest.mark.parametrize("word", ["\u0219i", "\u015fi", "\u00een", "\u021b\u0103", "cas\u0103"])
def test_romanian_stop_words_match_both_diacritics(word: str) -> None:
    options = {"language": "Romanian", "stem": False, "ascii_folding": False}
    theirs = [token.text for token in lance.tokenize(word, **options)]
    ours = token_filter(TextOptions.from_params(options))(word)
    assert ([] if ours is None else [ours]) == theirs


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("\u0622\u0646\u0641\u0627", {"base_tokenizer": "simple", "language": "Arabic"}),
        ("\uac01\uc790", {"base_tokenizer": "icu"}),
        ("\u0219i", {"base_tokenizer": "icu"}),
    ],
)
def test_lists_of_stop_words_are_whole(word: str, options: dict[str, str]) -> None:
    options = {"stem": False, "ascii_folding": False, **options}
    theirs = [token.text for token in lance.tokenize(word, **options)]
    ours = token_filter(TextOptions.from_params(options))(word)
    assert ([] if ours is None else [ours]) == theirs

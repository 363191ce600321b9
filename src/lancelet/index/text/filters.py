"""What becomes of a token: too long, lower case, stem, stop word, plain letters, in this order.

Running   running   run
The       the       the     left out
Thé       thé       thé     the         a stop word only before its mark was taken off
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from lancelet.errors import UnsupportedError
from lancelet.index.text.characters import fold, lower, stop_words, stop_words_of_all
from lancelet.index.text.options import TextOptions

try:
    import Stemmer
except ImportError:
    Stemmer = None


_ICU: Final = "icu"


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - PyStemmer's name


def token_filter(options: TextOptions) -> Callable[[str], str | None]:
    """Return what makes a token of a piece of text, or None where it is left out."""
    longest = options.max_token_length
    stem = _stemmer(options.language).stemWord if options.stem else None
    stopped: frozenset[str] = frozenset()
    if options.remove_stop_words:
        own = options.custom_stop_words
        if own is not None:
            stopped = frozenset(own)
        elif options.base_tokenizer.partition("/")[0] == _ICU:
            # Such texts may be of any language.
            stopped = stop_words_of_all()
        else:
            stopped = stop_words(options.language)

    def make(piece: str) -> str | None:
        if longest is not None and len(piece.encode()) >= longest:
            return None
        token = lower(piece) if options.lower_case else piece
        if stem is not None:
            token = stem(token)
        if token in stopped:
            return None
        return fold(token) if options.ascii_folding else token

    return make


def _stemmer(language: str) -> _Stemmer:
    if Stemmer is None:
        raise UnsupportedError(
            "stemming needs the package PyStemmer; install it or pass stem=False",
            language=language,
        )
    found: _Stemmer = Stemmer.Stemmer(language.lower())
    return found

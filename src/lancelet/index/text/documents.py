"""Tokens of JSON documents: where a value is, of what type it is, and a word of it.

    {"a": {"b": "Red fox"}, "n": [1, null]}     a.b,str,red  a.b,str,fox  n,number,1  n,null,null

Elements of a list are where the list is. A query names the same three things, and several of them
apart by semicolons: `a.b,str,red fox;n,number,1`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.index.text.analyzer import Analyzer, TextAnalyzer, Token, Vocabulary, Words
from lancelet.index.text.options import TextOptions

_TYPES: Final = ("str", "number", "bool", "null")


def analyzer_of(options: TextOptions) -> Analyzer:
    """Return what makes tokens of texts, or of documents, as options say."""
    return DocumentAnalyzer(options) if options.lance_tokenizer == "json" else TextAnalyzer(options)


@lru_cache(maxsize=2)
def fuzzy_analyzer(lance_tokenizer: str) -> Analyzer:
    """Return the analyzer of words with `fuzziness`: it splits them and changes nothing else.

    A stem is not near the word that it was made of, so the words of a query are compared with the
    tokens of the index as they are written, in upper or lower case, as the reference does.
    """
    return analyzer_of(
        TextOptions(
            lance_tokenizer=lance_tokenizer,
            max_token_length=None,
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
        )
    )


def path_length(token: str) -> int:
    """Return the length of the path and the type of a token of a document, which must be equal.

    >>> path_length("a.b,str,red")
    8
    """
    path, kind, _ = _triple(token)
    return len(path) + len(kind) + 2


class DocumentAnalyzer:
    """Makes tokens of JSON documents."""

    def __init__(self, options: TextOptions) -> None:
        """Prepare what the options need for the texts in documents."""
        self.options = options
        self._texts = TextAnalyzer(options)

    def analyze(self, texts: pa.Array, vocabulary: Vocabulary) -> Words:
        """Return the tokens of documents; a null has none."""
        leaves = [list(_leaves(document)) for document in texts.to_pylist()]
        strings = [text for own in leaves for _, kind, text in own if kind == "str"]
        inner = Vocabulary()
        words = self._texts.analyze(pa.array(strings, pa.large_string()), inner)
        ids, counts = words.ids.tolist(), words.counts.tolist()
        found: list[int] = []
        per_document: list[int] = []
        at = string = 0
        for own in leaves:
            before = len(found)
            for path, kind, text in own:
                if kind != "str":
                    found.append(vocabulary.number(f"{path},{kind},{text}"))
                    continue
                found.extend(
                    vocabulary.number(f"{path},str,{inner.tokens[number]}")
                    for number in ids[at : at + counts[string]]
                )
                at += counts[string]
                string += 1
            per_document.append(len(found) - before)
        numbers = np.array(per_document, np.int64)
        ends = np.cumsum(numbers)
        positions = np.arange(len(found)) - np.repeat(ends - numbers, numbers)
        return Words(np.array(found, np.uint32), positions.astype(np.uint32), numbers)

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens that a query names."""
        found: list[str] = []
        for triple in text.split(";"):
            path, kind, value = _triple(triple)
            prefix = f"{path},{kind},"
            if kind == "str":
                found += [prefix + token.text for token in self._texts.tokens(value)]
            else:
                found.append(prefix + value)
        return [Token(each, position) for position, each in enumerate(found)]


def _triple(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[1] not in _TYPES:
        raise InvalidInputError(
            "a query of documents is `path,type,value`, with a type of str, number, bool or null",
            found=text,
        )
    return parts[0], parts[1], parts[2]


def _leaves(document: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield where each value of a document is, its type and its text."""
    if document is None:
        return
    try:
        value = json.loads(document)
    except ValueError as error:
        raise CorruptDataError("a document is not JSON", found=document[:100]) from error
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, value = stack.pop()
        match value:
            case dict():
                before = f"{path}." if path else ""
                stack += [(before + key, value[key]) for key in sorted(value, reverse=True)]
            case list():
                stack += [(path, each) for each in reversed(value)]
            case str():
                yield path, "str", value
            case None:
                yield path, "null", "null"
            case bool():
                yield path, "bool", "true" if value else "false"
            case _:
                yield path, "number", repr(value).replace("e+", "e")

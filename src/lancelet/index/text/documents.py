"""Text analysis of JSON documents. A token consists of the path, type and text of a value.

    {"a": {"b": "Red fox"}, "n": [1, null]}     a.b,str,red  a.b,str,fox  n,number,1  n,null,null

List elements have the path of the list. Queries have the same form, separated by semicolons:
`a.b,str,red fox;n,number,1`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.index.text.analyzer import AnalyzedTexts, Analyzer, TextAnalyzer, Token, Vocabulary
from lancelet.index.text.options import TextOptions

_TYPES: Final = ("str", "number", "bool", "null")


def make_analyzer(options: TextOptions) -> Analyzer:
    """Return the analyzer for texts or JSON documents configured by the options."""
    return DocumentAnalyzer(options) if options.lance_tokenizer == "json" else TextAnalyzer(options)


@lru_cache(maxsize=2)
def fuzzy_analyzer(lance_tokenizer: str) -> Analyzer:
    """Return the analyzer of fuzzy queries, which only splits texts.

    Fuzzy terms are compared with the tokens of the index without stemming or changing their case,
    as in the reference: a term within the edit distance of a word may not be close to its stem.
    """
    return make_analyzer(
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
    """Return the length of the path and type of a token, which must match exactly in fuzzy queries.

    >>> path_length("a.b,str,red")
    8
    """
    path, kind, _ = _triple(token)
    return len(path) + len(kind) + 2


class DocumentAnalyzer:
    """Converts JSON documents to tokens."""

    def __init__(self, options: TextOptions) -> None:
        """Create an analyzer. The options apply to the strings in documents."""
        self.options = options
        self._texts = TextAnalyzer(options)

    def analyze(self, texts: pa.Array, vocabulary: Vocabulary) -> AnalyzedTexts:
        """Return the tokens of documents. A null has none."""
        leaves = [list(_leaves(document)) for document in texts.to_pylist()]
        strings = [text for values in leaves for _, kind, text in values if kind == "str"]
        inner = Vocabulary()
        analyzed = self._texts.analyze(pa.array(strings, pa.large_string()), inner)
        ids, counts = analyzed.ids.tolist(), analyzed.counts.tolist()
        token_ids: list[int] = []
        per_document: list[int] = []
        position = string = 0
        for values in leaves:
            num_before = len(token_ids)
            for path, kind, text in values:
                if kind != "str":
                    token_ids.append(vocabulary.number(f"{path},{kind},{text}"))
                    continue
                token_ids.extend(
                    vocabulary.number(f"{path},str,{inner.tokens[number]}")
                    for number in ids[position : position + counts[string]]
                )
                position += counts[string]
                string += 1
            per_document.append(len(token_ids) - num_before)
        numbers = np.array(per_document, np.int64)
        ends = np.cumsum(numbers)
        positions = np.arange(len(token_ids)) - np.repeat(ends - numbers, numbers)
        return AnalyzedTexts(np.array(token_ids, np.uint32), positions.astype(np.uint32), numbers)

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a query."""
        tokens: list[str] = []
        for triple in text.split(";"):
            path, kind, value = _triple(triple)
            prefix = f"{path},{kind},"
            if kind == "str":
                tokens += [prefix + token.text for token in self._texts.tokens(value)]
            else:
                tokens.append(prefix + value)
        return [Token(each, position) for position, each in enumerate(tokens)]


def _triple(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) != 3 or parts[1] not in _TYPES:
        raise InvalidInputError(
            (
                "a query of JSON documents must have the form `path,type,value`, where type is "
                "str, number, bool or null"
            ),
            found=text,
        )
    return parts[0], parts[1], parts[2]


def _leaves(document: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield the path, type and text of each value of a document."""
    if document is None:
        return
    try:
        value = json.loads(document)
    except ValueError as error:
        raise CorruptDataError("invalid JSON document", found=document[:100]) from error
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, value = stack.pop()
        match value:
            case dict():
                prefix = f"{path}." if path else ""
                stack += [(prefix + key, value[key]) for key in sorted(value, reverse=True)]
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

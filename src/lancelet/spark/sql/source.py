"""The text of a statement: its tokens, and errors with a line and a caret.

UPDATE lance.`/data/t` SE x = 1
                       ^
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from lancelet.errors import InvalidInputError
from lancelet.values import cached_property, dataclass

_DIALECT: Final = Spark()
_FIRST: Final = "x "
_BEFORE_OPERANDS: Final = frozenset(
    {
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "ILIKE",
        "RLIKE",
        "BETWEEN",
        "DIV",
        "DISTINCT",
        "FROM",
        "IS",
    }
)
"""Keywords that an operand follows."""


class StatementError(InvalidInputError):
    """A statement that cannot be parsed or run; the message contains the line and a caret."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement: its text without quotes, and its range in the statement."""

    kind: str
    text: str
    start: int
    stop: int

    @property
    def word(self) -> str:
        """The text in upper case; empty for quoted tokens."""
        return "" if self.kind in {"IDENTIFIER", "STRING"} else self.text.upper()

    @property
    def clause(self) -> str:
        """The first word of tokens such as GROUP BY."""
        return self.word.split(" ", 1)[0]


@dataclass(frozen=True)
class Source:
    """The text of a statement; `origin` is the user's statement if this one was derived from it."""

    text: str
    origin: Source | None = None

    @property
    def is_written(self) -> bool:
        """Whether the text is the user's statement or the end of it."""
        return self.origin is None or self.origin.text.endswith(self.text)

    @property
    def start(self) -> int:
        """The position of the first token."""
        return self.tokens[0].start if self.tokens else 0

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens without comments; empty if the text cannot be tokenized."""
        try:
            # After a first word such as SHOW, the tokenizer treats the rest as one token.
            found = _DIALECT.tokenize(_FIRST + self.text)[1:]
        except SqlglotError:
            return ()
        # A literal such as 1L yields three tokens at one position; the first has the digits.
        made: list[Token] = []
        for each in found:
            if not made or each.start - len(_FIRST) >= made[-1].stop:
                start, stop = each.start - len(_FIRST), each.end + 1 - len(_FIRST)
                made.append(Token(each.token_type.name, each.text, start, stop))
        while made and made[-1].kind == "SEMICOLON":
            made.pop()
        return tuple(made)

    def fail(self, message: str, start: int, **facts: Any) -> NoReturn:
        """Raise an error that points to a character."""
        raise StatementError(f"{message}\n{self.pointer(start)}", **facts)

    def pointer(self, start: int) -> str:
        """Return the position of a character, and its line with a caret.

        >>> print(Source("FORM t").pointer(5))
        line 1, column 6:
        FORM t
             ^
        """
        if self.origin is not None:
            found = self.in_origin(start)
            return self.origin.pointer(self.origin.start if found is None else found)
        start = min(start, len(self.text))
        first = self.text.rfind("\n", 0, start) + 1
        stop = self.text.find("\n", start)
        line = self.text[first:] if stop < 0 else self.text[first:stop]
        number = self.text.count("\n", 0, start) + 1
        column = start - first
        return f"line {number}, column {column + 1}:\n{line}\n{' ' * column}^"

    def in_origin(self, start: int) -> int | None:
        """Return the position in the original statement of a position in this text.

        In a generated text, it is that of the token that has the most neighbors in common, or None
        if the statement does not contain the token.
        """
        if self.origin is None:
            return start
        at_end = self.origin.text.rfind(self.text)
        if at_end >= 0:
            return at_end + start
        mine = [each.text for each in self.tokens]
        number = next((n for n, each in enumerate(self.tokens) if each.start == start), None)
        if number is None:
            return None
        theirs = [each.text for each in self.origin.tokens]

        def common(index: int) -> int:
            pairs = [(number + step, index + step) for step in (-2, -1, 1, 2)]
            return sum(
                0 <= one < len(mine) and 0 <= two < len(theirs) and mine[one] == theirs[two]
                for one, two in pairs
            )

        indices = [index for index, text in enumerate(theirs) if text == mine[number]]
        return self.origin.tokens[max(indices, key=common)].start if indices else None


def follows_dot(before: Token | None) -> bool:
    """Return whether a token is a field of the name before it, as in `t.end`."""
    return before is not None and before.kind == "DOT"


def ends_operand(before: Token | None) -> bool:
    """Return whether an operand ends with a token, so that a keyword must follow."""
    if before is None or before.word in _BEFORE_OPERANDS:
        return False
    is_value = before.kind in {
        "R_PAREN",
        "R_BRACKET",
        "STRING",
        "NUMBER",
        "IDENTIFIER",
        "PARAMETER",
    }
    return is_value or before.text[:1].isalnum() or before.text[:1] == "_"


def call_stop(tokens: Sequence[Token], number: int) -> int:
    """Return the end of a function call; `number` is the index of the function name."""
    depth = 0
    for token in tokens[number + 1 :]:
        depth += (token.kind == "L_PAREN") - (token.kind == "R_PAREN")
        if not depth:
            return token.stop
    raise AssertionError("a function call is not closed")


def edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with the given ranges replaced."""
    made, done = [], 0
    for start, stop, word in sorted(edits):
        made += [text[done:start], word]
        done = stop
    return "".join([*made, text[done:]])


def parse_query(text: str) -> exp.Query | None:
    """Parse a query; return None if the parser does not support all of it."""
    try:
        found = sqlglot.parse(text, read=_DIALECT)
    except (SqlglotError, RecursionError):
        return None
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        return None
    tree = found[0]
    return None if tree.find(exp.Command) is not None else tree

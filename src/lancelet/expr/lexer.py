"""Split a filter into tokens lazily, with one regular expression.

    age >= 30      name 'age' at 0,  sign '>=' at 4,  number '30' at 7,  end at 9

Because tokens are produced on demand, the parser can consume a list of a hundred thousand constants
in one match instead of two hundred thousand tokens.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NoReturn

import pyarrow as pa

from lancelet.errors import ExpressionError
from lancelet.expr.literal_text import DECIMAL256_DIGITS, decimal_type, to_narrowest_array
from lancelet.values import dataclass

_CONTEXT_CHARACTERS: Final = 60


class Kind(Enum):
    """The kind of a token."""

    NAME = "name"
    QUOTED_NAME = "quoted"
    TEXT = "text"
    HEX = "hex"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its value without quotes, and its start and stop in the text."""

    kind: Kind
    value: str
    start: int
    stop: int

    def is_keyword(self, keyword: str) -> bool:
        """Return whether the token is an unquoted keyword, ignoring case."""
        return self.kind is Kind.NAME and self.value.lower() == keyword

    def is_sign(self, *signs: str) -> bool:
        """Return whether the token is one of the given signs."""
        return self.kind is Kind.SIGN and self.value in signs


_SKIPPED: Final = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""
    (?P<hex>[xX]'[^']*'|0[xX][0-9a-fA-F]+)
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>[^\W\d]\w*)
  | (?P<quoted>`[^`]*(?:``[^`]*)*`)
  | (?P<text>'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*")
  | (?P<sign><=>|::|==|<>|!=|<=|>=|<<|>>|\|\||!~\*|!~|~\*|[-+*/%<>=~&|\#^()\[\],.:])
    """,
    re.VERBOSE,
)
_INTEGER_LIST: Final = re.compile(r"\s*-?\d+(?:\s*,\s*-?\d+)*\s*(?=\))")
_NUMBER: Final = r"-?(?:\d+(?:\.\d*)?|\.\d+)"
_NUMBER_LIST: Final = re.compile(rf"\s*{_NUMBER}(?:\s*,\s*{_NUMBER})*\s*(?=\))")
# One alternative per character would store a backtracking state for each, 250 bytes apiece.
_QUOTED: Final = r"'[^']*(?:''[^']*)*'"
_TEXT_LIST: Final = re.compile(rf"\s*{_QUOTED}(?:\s*,\s*{_QUOTED})*\s*(?=\))")
_TEXT_ITEM: Final = re.compile(r"'([^']*(?:''[^']*)*)'")


class Lexer:
    """Iterates over the tokens of a text, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        """Start at the first token."""
        self.text = text
        self.token = self._token_at(0)

    def advance(self) -> Token:
        """Return the current token and advance to the next."""
        current = self.token
        self.token = self._token_at(current.stop)
        return current

    def peek(self) -> Token:
        """Return the token after the current one."""
        return self._token_at(self.token.stop)

    def take_constants(self) -> pa.Array | None:
        """Consume a list of integer, decimal or string constants up to the closing parenthesis.

        The current token is the opening parenthesis. Return None if the list has other items.
        """
        start = self.token.stop
        if match := _INTEGER_LIST.match(self.text, start):
            values = to_narrowest_array(list(map(int, match.group().split(","))))
        elif match := _NUMBER_LIST.match(self.text, start):
            values = _decimals(match.group().split(","))
        elif match := _TEXT_LIST.match(self.text, start):
            items = _TEXT_ITEM.findall(match.group())
            values = pa.array([text.replace("''", "'") for text in items], pa.string())
        else:
            return None
        self.token = self._token_at(match.end())
        return values

    def fail(self, message: str, position: int) -> NoReturn:
        """Raise an error that points to a character."""
        raise ExpressionError(f"{message}\n{pointer(self.text, position)}")

    def _token_at(self, position: int) -> Token:
        skipped = _SKIPPED.match(self.text, position)
        assert skipped is not None
        start = skipped.end()
        if start == len(self.text):
            return Token(Kind.END, "", start, start)
        match = _TOKEN.match(self.text, start)
        if match is None:
            self._fail_at(start)
        kind, text = Kind(match.lastgroup), match.group()
        return Token(kind, _value(kind, text), start, match.end())

    def _fail_at(self, start: int) -> NoReturn:
        character = self.text[start]
        if character in "'\"`":
            self.fail(f"unclosed quote {character}", start)
        self.fail(f"unexpected character {character!r}", start)


def _value(kind: Kind, text: str) -> str:
    if kind in {Kind.TEXT, Kind.QUOTED_NAME}:
        quote = text[0]
        return text[1:-1].replace(quote * 2, quote)
    if kind is Kind.HEX:
        digits = text[2:].strip("'")
        return digits if len(digits) % 2 == 0 else f"0{digits}"
    return text


def _decimals(texts: list[str]) -> pa.Array:
    """Parse numbers to exact decimals, or to doubles if they have too many digits."""
    parts = [text.strip() for text in texts]
    scale = max(len(part.partition(".")[2]) for part in parts)
    integer_digits = max(len(part.partition(".")[0].lstrip("-")) for part in parts)
    exact = integer_digits + scale <= DECIMAL256_DIGITS
    return pa.array(parts).cast(
        decimal_type(integer_digits + scale, scale) if exact else pa.float64()
    )


def pointer(text: str, position: int) -> str:
    r"""Return the text around a position with a caret below it.

    >>> print(pointer("age >> ' 30", 7))
    age >> ' 30
           ^
    """
    start = max(0, position - _CONTEXT_CHARACTERS)
    stop = position + _CONTEXT_CHARACTERS
    head, tail = "..." if start else "", "..." if stop < len(text) else ""
    excerpt = "".join(" " if character.isspace() else character for character in text[start:stop])
    return f"{head}{excerpt}{tail}\n{' ' * (len(head) + position - start)}^"

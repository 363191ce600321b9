"""Words of a filter: one regular expression, read on demand, each word with its position.

    age >= 30      name 'age' at 0,  sign '>=' at 4,  number '30' at 7,  end at 9

Reading on demand lets the parser take a list of a hundred thousand constants with one match
instead of two hundred thousand words.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NoReturn

import pyarrow as pa

from lancelet.errors import ExpressionError
from lancelet.query.literal_text import DECIMAL256_DIGITS, decimal_type, exact_numbers
from lancelet.values import dataclass

_SHOWN_CHARACTERS: Final = 60


class Kind(Enum):
    """What a word is."""

    NAME = "name"
    QUOTED_NAME = "quoted"
    TEXT = "text"
    HEX = "hex"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A word: its value without quotes, and where it starts and stops in the text."""

    kind: Kind
    value: str
    start: int
    stop: int

    def is_word(self, word: str) -> bool:
        """Whether this is an unquoted word, in any case."""
        return self.kind is Kind.NAME and self.value.lower() == word

    def is_sign(self, *signs: str) -> bool:
        """Whether this is one of some signs."""
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
# A choice for each character would remember each of them, 250 bytes for one.
_QUOTED: Final = r"'[^']*(?:''[^']*)*'"
_TEXT_LIST: Final = re.compile(rf"\s*{_QUOTED}(?:\s*,\s*{_QUOTED})*\s*(?=\))")
_TEXT_ITEM: Final = re.compile(r"'([^']*(?:''[^']*)*)'")


class Lexer:
    """The words of a text, with one word in hand and a look at the next."""

    def __init__(self, text: str) -> None:
        """Take the first word in hand."""
        self.text = text
        self.token = self._token_at(0)

    def advance(self) -> Token:
        """Return the word in hand and take the next."""
        taken = self.token
        self.token = self._token_at(taken.stop)
        return taken

    def peek(self) -> Token:
        """Return the word after the one in hand."""
        return self._token_at(self.token.stop)

    def take_constants(self) -> pa.Array | None:
        """Take a whole list of integers, decimals or texts up to its closing parenthesis.

        The word in hand is the opening one. Nothing is taken if the list holds other things.
        """
        start = self.token.stop
        if match := _INTEGER_LIST.match(self.text, start):
            values = exact_numbers(list(map(int, match.group().split(","))))
        elif match := _NUMBER_LIST.match(self.text, start):
            values = _decimals(match.group().split(","))
        elif match := _TEXT_LIST.match(self.text, start):
            found = _TEXT_ITEM.findall(match.group())
            values = pa.array([text.replace("''", "'") for text in found], pa.string())
        else:
            return None
        self.token = self._token_at(match.end())
        return values

    def fail(self, message: str, position: int) -> NoReturn:
        """Raise an error that points at a character."""
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
            self.fail(f"the quote {character} is never closed", start)
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
    """Return written numbers as exact decimals, or as doubles if they are too long for that."""
    parts = [text.strip() for text in texts]
    scale = max(len(part.partition(".")[2]) for part in parts)
    whole = max(len(part.partition(".")[0].lstrip("-")) for part in parts)
    exact = whole + scale <= DECIMAL256_DIGITS
    return pa.array(parts).cast(decimal_type(whole + scale, scale) if exact else pa.float64())


def pointer(text: str, position: int) -> str:
    r"""Return the text around a position with a caret below it.

    >>> print(pointer("age >> ' 30", 7))
    age >> ' 30
           ^
    """
    start = max(0, position - _SHOWN_CHARACTERS)
    stop = position + _SHOWN_CHARACTERS
    head, tail = "..." if start else "", "..." if stop < len(text) else ""
    shown = "".join(" " if character.isspace() else character for character in text[start:stop])
    return f"{head}{shown}{tail}\n{' ' * (len(head) + position - start)}^"

"""Parse operands: constants, columns, calls, casts, CASE and lists.

    a['b'].c        Column(a, b, c)           items[1].price    Member(Call(array_element, ...))
    substring(s from 2 for 3)                 Call(substr, s, 2, 3)
    DATE '2020-01-31', 5::bigint, [1, 2]      constants and casts

Special SQL syntax of functions (`POSITION(x IN y)`, `TRIM(BOTH x FROM y)`,
`EXTRACT(year FROM t)`) is parsed to ordinary calls.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import field
from typing import Final, NoReturn

import pyarrow as pa

from lancelet.errors import ExpressionError
from lancelet.expr import expression as ex
from lancelet.expr.data_types import parse_arrow_type, sql_type
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.lexer import Kind, Lexer, Token, pointer
from lancelet.expr.literal_text import UnfitError, parse_instant, parse_interval, parse_number
from lancelet.expr.literals import Unrepresentable, fit, list_of_constants
from lancelet.values import dataclass

_BARE_FUNCTIONS: Final = frozenset({"current_date", "current_time", "current_timestamp"})
_TYPED_TEXT: Final = frozenset(
    {"date", "time", "timestamp", "datetime", "timestamptz", "decimal", "numeric"}
)
_PRECISION: Final = re.compile(r"\(\s*\d+\s*(?:,\s*\d+\s*)?\)\s*['\"]")
_NEVER_COLUMNS: Final = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "is",
        "like",
        "ilike",
        "between",
        "when",
        "then",
        "else",
        "end",
        "where",
    ]
)
"""Keywords that cannot be unquoted column names."""

_NEVER_BEGIN: Final = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "~", "%", "/", "||", ")", ",")
"""Signs that cannot start a value, so a preceding type keyword is a column name."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the start position of each expression parsed from it."""

    text: str
    starts: dict[int, tuple[Expression, int]] = field(default_factory=dict)

    def error(self, message: str, node: Expression) -> ExpressionError:
        """Return an error that points to the position of a node, if it is in the text."""
        if id(node) not in self.starts:
            return ExpressionError(f"{message}\n{self.text[:200]}" if self.text else message)
        return ExpressionError(f"{message}\n{pointer(self.text, self.starts[id(node)][1])}")


class OperandParser(ABC):
    """Parses operands; subclasses parse operators."""

    def __init__(self, text: str) -> None:
        """Start at the first token of a text."""
        self.lexer = Lexer(text)
        self.source = Source(text)

    @abstractmethod
    def expression(self, level: int) -> Expression:
        """Parse an expression of operators with at least the precedence `level`."""

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise an error that points to a token, by default the current one."""
        self.lexer.fail(message, (token or self.lexer.token).start)

    def at_end(self) -> bool:
        """Whether all tokens were consumed."""
        return self.lexer.token.kind is Kind.END

    def take_word(self, word: str) -> bool:
        """Consume a keyword if it is the current token."""
        taken = self.lexer.token.is_keyword(word)
        if taken:
            self.lexer.advance()
        return taken

    def take_sign(self, sign: str) -> bool:
        """Consume a sign if it is the current token."""
        taken = self.lexer.token.is_sign(sign)
        if taken:
            self.lexer.advance()
        return taken

    def require_word(self, word: str) -> None:
        """Consume a keyword or raise."""
        if not self.take_word(word):
            self.fail(f"expected {word.upper()}, found {self.found()}")

    def require_sign(self, sign: str) -> None:
        """Consume a sign or raise."""
        if not self.take_sign(sign):
            self.fail(f"expected {sign!r}, found {self.found()}")

    def found(self) -> str:
        """Return the current token for error messages."""
        token = self.lexer.token
        return "the end" if token.kind is Kind.END else repr(token.value)

    def at(self, start: int, node: Expression) -> Expression:
        """Record the position of a node and return it."""
        self.source.starts[id(node)] = (node, start)
        return node

    def items(self, closing: str) -> tuple[Expression, ...]:
        """Parse comma-separated expressions up to and including a closing sign."""
        items: list[Expression] = []
        if self.take_sign(closing):
            return ()
        while True:
            items.append(self.expression(ex.OR))
            if not self.take_sign(","):
                break
        self.require_sign(closing)
        return tuple(items)

    def postfix(self, start: int, found: Expression) -> Expression:
        """Parse the casts, subscripts and members that follow an operand."""
        while True:
            if self.take_sign("::"):
                found = self.at(start, ex.Cast(found, self._type()))
            elif self.take_sign("["):
                found = self.at(start, self._subscript(found))
            elif self.take_sign("."):
                found = self.at(start, _member(found, self._name()))
            else:
                return found

    def _subscript(self, operand: Expression) -> Expression:
        if self.lexer.token.kind is Kind.TEXT:
            name = self.lexer.advance().value
            self.require_sign("]")
            return _member(operand, name)
        index = self.expression(ex.OR)
        if self.take_sign(":"):
            last = self.expression(ex.OR)
            self.require_sign("]")
            return ex.Call("array_slice", (operand, index, last))
        self.require_sign("]")
        return ex.Call("array_element", (operand, index))

    def _name(self) -> str:
        token = self.lexer.token
        if token.kind not in {Kind.NAME, Kind.QUOTED_NAME}:
            self.fail(f"expected a name, found {self.found()}")
        return self.lexer.advance().value

    def primary(self) -> Expression:
        """Parse one operand without postfix operators."""
        token = self.lexer.token
        if token.kind is Kind.HEX:
            return self._hex()
        if token.kind is Kind.END or (token.kind is Kind.SIGN and token.value not in {"(", "["}):
            self.fail(f"expected a value, found {self.found()}")
        if token.kind is Kind.NAME:
            return self.at(token.start, self._word(token))
        self.lexer.advance()
        if token.kind is Kind.QUOTED_NAME:
            return self.at(token.start, ex.Column((token.value,)))
        if token.kind is Kind.NUMBER:
            return self.at(token.start, ex.Literal(parse_number(token.value)))
        if token.kind is Kind.TEXT:
            return self.at(token.start, ex.literal(token.value))
        if token.value == "[":
            return self.at(token.start, self._list(self.items("]"), token))
        inner = self.expression(ex.OR)
        self.require_sign(")")
        return inner

    def _hex(self) -> Expression:
        token = self.lexer.advance()
        try:
            return self.at(token.start, ex.literal(bytes.fromhex(token.value)))
        except ValueError:
            self.fail("a hexadecimal constant must consist of pairs of 0-9 and a-f", token)

    def _list(self, items: tuple[Expression, ...], token: Token) -> Expression:
        scalars = [item.scalar for item in items if isinstance(item, ex.Literal)]
        if len(scalars) < len(items):
            return ex.Call("make_array", items)
        values = list_of_constants(scalars)
        if values is None:
            self.fail("list items must have one type", token)
        return ex.Literal(values)

    def _word(self, token: Token) -> Expression:
        word, following = token.value.lower(), self.lexer.peek()
        self.lexer.advance()
        if word in _TYPED_TEXT and (following.kind is Kind.TEXT or following.is_sign("(")):
            return self._typed_text(word, token)
        opens = following.kind is not Kind.END and not following.is_sign(*_NEVER_BEGIN)
        match word:
            case "true" | "false":
                return ex.literal(word == "true")
            case "null":
                return ex.Literal(pa.scalar(None))
            case "case" if opens:
                return self._case()
            case "interval" if following.kind in {Kind.TEXT, Kind.NUMBER}:
                return self._interval()
            case "array" if following.is_sign("["):
                self.lexer.advance()
                return self._list(self.items("]"), token)
            case "select" | "exists" | "any" | "some" | "all" if opens:
                self.fail("subqueries are not supported in filters", token)
        if following.is_sign("("):
            self.lexer.advance()
            return self._call(word, token)
        if word in _BARE_FUNCTIONS:
            return ex.Call(word, ())
        if word in _NEVER_COLUMNS:
            self.fail(f"{token.value!r} is a keyword; quote a column of that name with `", token)
        return ex.Column((token.value,))

    def _typed_text(self, word: str, token: Token) -> Expression:
        if self.lexer.token.is_sign("("):
            # A precision, `TIMESTAMP(3) '...'`, or a call of a function of that name.
            data_type = self._type_parameters(word, token) if self._precision_follows() else None
            if data_type is None:
                self.lexer.advance()
                return self._call(word, token)
        else:
            data_type = sql_type(word, ())
        text = self.lexer.advance()
        if text.kind is not Kind.TEXT:
            self.fail(f"expected quoted text after {word.upper()}", text)
        try:
            if pa.types.is_timestamp(data_type):
                data_type = _timestamp_type_of(text.value, data_type, exact=word != "timestamp")
            fitted = fit(pa.scalar(text.value), data_type)
        except UnfitError as error:
            self.fail(str(error), text)
        if isinstance(fitted, Unrepresentable):
            self.fail(f"{text.value!r} is out of range or too precise for {data_type}", text)
        return ex.Literal(fitted)

    def _precision_follows(self) -> bool:
        return _PRECISION.match(self.lexer.text, self.lexer.token.start) is not None

    def _interval(self) -> Expression:
        token = self.lexer.advance()
        text = token.value
        if token.kind is Kind.NUMBER or text.strip().lstrip("+-").isdigit():
            text = f"{text} {self._name()}"
        try:
            return ex.Literal(parse_interval(text))
        except UnfitError as error:
            self.fail(str(error), token)

    def _case(self) -> Expression:
        subject = None if self.lexer.token.is_keyword("when") else self.expression(ex.OR)
        branches: list[tuple[Expression, Expression]] = []
        while self.take_word("when"):
            start = self.lexer.token.start
            when = self.expression(ex.OR)
            if subject is not None:
                when = self.at(start, ex.Comparison(Operator.EQUAL, subject, when))
            self.require_word("then")
            branches.append((when, self.expression(ex.OR)))
        if not branches:
            self.fail(f"expected WHEN, found {self.found()}")
        otherwise = self.expression(ex.OR) if self.take_word("else") else ex.Literal(ex.NULL.scalar)
        self.require_word("end")
        return ex.Case(tuple(branches), otherwise)

    def _call(self, word: str, token: Token) -> Expression:
        """Parse the arguments of a function after the opening parenthesis."""
        match word:
            case "cast" | "try_cast":
                operand = self.expression(ex.OR)
                self.require_word("as")
                data_type = self._type()
                self.require_sign(")")
                return ex.Cast(operand, data_type, word == "try_cast")
            case "extract":
                part = self.lexer.advance()
                self.require_word("from")
                instant = self.expression(ex.OR)
                self.require_sign(")")
                return ex.Call("date_part", (ex.literal(part.value.lower()), instant))
            case "position":
                needle = self.expression(ex.CONCAT)
                if self.take_sign(","):
                    # With a comma, the reference expects the argument order of `strpos`.
                    haystack = self.expression(ex.OR)
                    self.require_sign(")")
                    return ex.Call("strpos", (needle, haystack))
                self.require_word("in")
                text = self.expression(ex.OR)
                self.require_sign(")")
                return ex.Call("strpos", (text, needle))
            case "trim":
                return self._trim()
            case "substring" | "substr":
                return self._substring()
        items = self.items(")")
        if word == "is_valid" and len(items) == 1:
            return ex.Not(ex.IsNull(items[0]))
        if word in {"arrow_cast", "arrow_try_cast"} and len(items) == 2:
            return self._arrow_cast(items[0], items[1], token, or_null=word == "arrow_try_cast")
        return ex.Call(word, items)

    def _trim(self) -> Expression:
        names = {"leading": "ltrim", "trailing": "rtrim", "both": "btrim"}
        function = names.get(self.lexer.token.value.lower())
        if function is not None and not self.lexer.peek().is_sign(")", ","):
            self.lexer.advance()
        first = () if self.lexer.token.is_keyword("from") else (self.expression(ex.OR),)
        if self.take_word("from"):
            first = (self.expression(ex.OR), *first)
        elif self.take_sign(","):
            first = (*first, self.expression(ex.OR))
        self.require_sign(")")
        return ex.Call(function or "btrim", first)

    def _substring(self) -> Expression:
        arguments = [self.expression(ex.OR)]
        if self.take_word("from"):
            arguments.append(self.expression(ex.OR))
        if self.take_word("for"):
            start = arguments[1:] or [ex.literal(1)]
            arguments = [arguments[0], *start, self.expression(ex.OR)]
        while self.take_sign(","):
            arguments.append(self.expression(ex.OR))
        self.require_sign(")")
        return ex.Call("substr", tuple(arguments))

    def _arrow_cast(
        self, operand: Expression, name: Expression, token: Token, *, or_null: bool
    ) -> Expression:
        if not isinstance(name, ex.Literal) or not pa.types.is_string(name.data_type):
            self.fail("the second argument of arrow_cast must be a quoted type", token)
        try:
            data_type = parse_arrow_type(name.scalar.as_py())
        except ValueError as error:
            raise self.source.error(str(error), name) from error
        # A null constant is printed without its type.
        if not isinstance(operand, ex.Literal) or not operand.scalar.is_valid:
            return ex.Cast(operand, data_type, or_null)
        return _constant_of(operand, data_type) or ex.Cast(operand, data_type, or_null)

    # --- types -------------------------------------------------------------------------------

    def _type(self) -> pa.DataType:
        token = self.lexer.token
        name = self._name()
        if token.is_keyword("double"):
            self.take_word("precision")
        return self._type_parameters(name, token)

    def _type_parameters(self, name: str, token: Token) -> pa.DataType:
        parameters: list[int] = []
        if self.take_sign("("):
            while self.lexer.token.kind is Kind.NUMBER and self.lexer.token.value.isdigit():
                parameters.append(int(self.lexer.advance().value))
                if not self.take_sign(","):
                    break
            self.require_sign(")")
        if self.take_word("unsigned"):
            name = f"{name} unsigned"
        try:
            return sql_type(name, tuple(parameters))
        except ValueError as error:
            self.fail(str(error), token)


def _member(operand: Expression, name: str) -> Expression:
    if isinstance(operand, ex.Column):
        return ex.Column((*operand.path, name))
    return ex.Member(operand, name)


def _constant_of(constant: ex.Literal, data_type: pa.DataType) -> ex.Literal | None:
    try:
        fitted = fit(constant.scalar, data_type)
    except UnfitError:
        return None
    return None if isinstance(fitted, Unrepresentable) else ex.Literal(fitted)


def _timestamp_type_of(text: str, data_type: pa.DataType, *, exact: bool) -> pa.DataType:
    """Return the type of a timestamp constant: nanoseconds and a zone only if the text has them."""
    instant = parse_instant(text)
    unit = "ns" if instant.nanoseconds % 1000 and not exact else data_type.unit
    return pa.timestamp(unit, "UTC" if instant.has_zone else data_type.tz)

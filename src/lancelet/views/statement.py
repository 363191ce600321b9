"""Parse the query of a view.

    SELECT city, count(*) AS people, avg(age) AS age FROM source WHERE age > 17 GROUP BY city
    SELECT *, price * 2 AS twice, embed(title) AS vector FROM source

The table is always called `source`. Expressions have the syntax of filters; they are kept as text
and compiled for each version of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NoReturn

from lancelet.expr.expression import Column
from lancelet.expr.lexer import Kind, Lexer, Token
from lancelet.expr.parse import parse
from lancelet.views.definition import FUNCTIONS, Aggregation, FunctionCall, Query, ViewColumn

_ENDS: Final = ("from", "where", "group", "having", "order", "limit", "union", "join")
_UNSUPPORTED: Final = {
    "having": "filter the groups when the view is read",
    "order": "sort the rows when the view is read",
    "limit": "limit the rows when the view is read",
    "union": "create a view for each query",
    "join": "views have one source; join them when they are read",
}
_OPENING: Final = "(["
_CLOSING: Final = ")]"


def parse_query(text: str, names: Sequence[str], functions: Collection[str] = ()) -> Query:
    """Parse a query over a table with columns `names`.

    `functions` are the names of Python functions that the query may call.

    >>> parse_query("SELECT a, sum(b) AS total FROM source GROUP BY a", ["a", "b"]).groups
    ('a',)
    """
    return _QueryParser(text, names, frozenset(functions)).query()


class _QueryParser:
    """Splits a query into the texts of its expressions."""

    def __init__(self, text: str, names: Sequence[str], functions: frozenset[str]) -> None:
        self._text = text
        self._names = names
        self._functions = functions
        self._lexer = Lexer(text)

    def query(self) -> Query:
        """Return the query."""
        self._require("select")
        if self._lexer.token.is_keyword("distinct"):
            self._fail("DISTINCT is not supported; use GROUP BY with the columns")
        columns = self._columns()
        self._require("from")
        source = self._lexer.advance()
        if source.kind not in {Kind.NAME, Kind.QUOTED_NAME} or source.value.lower() != "source":
            self._fail("the table of the query is called `source`", source)
        condition = None
        if self._accept("where"):
            condition = self._expression("group")
        groups: list[str] | None = None
        if self._accept("group"):
            self._require("by")
            groups = [self._expression()]
            while self._accept_sign(","):
                groups.append(self._expression())
        token = self._lexer.token
        if token.kind is not Kind.END:
            hint = _UNSUPPORTED.get(token.value.lower())
            self._fail(f"{token.value} is not supported; {hint}" if hint else "unexpected text")
        return self._checked(columns, condition, groups)

    def _columns(self) -> list[tuple[ViewColumn, Token]]:
        found: list[tuple[ViewColumn, Token]] = []
        while True:
            first = self._lexer.token
            if self._accept_sign("*"):
                found += [(ViewColumn(name, str(Column((name,)))), first) for name in self._names]
            else:
                found.append((self._column(), first))
            if not self._accept_sign(","):
                return found

    def _column(self) -> ViewColumn:
        first = self._lexer.token
        call = self._call(first)
        text = first.value if call else self._expression("as")
        value = call or text
        if self._accept("as") or self._lexer.token.kind is Kind.QUOTED_NAME:
            named = self._lexer.advance()
            if named.kind not in {Kind.NAME, Kind.QUOTED_NAME}:
                self._fail("a column name is expected after AS", named)
            return ViewColumn(named.value, value)
        column = parse(text) if call is None else None
        if not isinstance(column, Column):
            self._fail(f"name the column: {text} AS ...", first)
        return ViewColumn(column.path[-1], value)

    def _call(self, first: Token) -> Aggregation | FunctionCall | None:
        """Parse an aggregate or the call of a Python function, which must be a whole column."""
        name = first.value.lower() if first.kind is Kind.NAME else ""
        is_function = first.value in self._functions and first.kind is Kind.NAME
        if not (name in FUNCTIONS or is_function) or not self._lexer.peek().is_sign("("):
            return None
        self._lexer.advance()
        self._lexer.advance()
        arguments: list[str] = []
        if self._lexer.token.is_sign(")"):
            if not is_function:
                self._fail(f"{name} requires an argument")
        elif is_function or name != "count" or not self._accept_sign("*"):
            if self._lexer.token.is_keyword("distinct"):
                self._fail("DISTINCT is not supported in aggregates of views")
            arguments = [self._expression()]
            while self._accept_sign(","):
                arguments.append(self._expression())
        if not self._accept_sign(")"):
            self._fail(") is expected")
        token = self._lexer.token
        is_whole = token.kind is Kind.END or token.is_sign(",")
        if not is_whole and not any(token.is_keyword(each) for each in (*_ENDS, "as")):
            self._fail(
                "aggregates and Python functions must be whole columns; compute with their results "
                "when the view is read"
            )
        if is_function:
            return FunctionCall(first.value, tuple(arguments))
        if len(arguments) > 1:
            self._fail(f"{name} has one argument", first)
        return Aggregation(name, arguments[0] if arguments else None)

    def _expression(self, *ends: str) -> str:
        """Return the text up to a comma, a closing parenthesis or an ending keyword."""
        first, last, depth = self._lexer.token, None, 0
        while self._lexer.token.kind is not Kind.END:
            token = self._lexer.token
            if depth == 0:
                is_end = any(token.is_keyword(each) for each in (*ends, *_ENDS))
                if token.is_sign(",", *_CLOSING) or is_end:
                    break
            if token.is_sign(*_OPENING):
                depth += 1
            elif token.is_sign(*_CLOSING):
                depth -= 1
            last = self._lexer.advance()
        if last is None:
            self._fail("an expression is expected", first)
        text = self._text[first.start : last.stop]
        parse(text)
        return text

    def _checked(
        self,
        columns: list[tuple[ViewColumn, Token]],
        condition: str | None,
        groups: list[str] | None,
    ) -> Query:
        values = [(column.value, token) for column, token in columns]
        has_aggregates = any(isinstance(value, Aggregation) for value, _ in values)
        if groups is None and has_aggregates:
            groups = []
        if groups is not None:
            allowed = {parse(group) for group in groups}
            for value, token in values:
                if isinstance(value, FunctionCall):
                    self._fail("Python functions cannot be combined with GROUP BY", token)
                if isinstance(value, str) and parse(value) not in allowed:
                    self._fail("the column is neither in GROUP BY nor an aggregate", token)
        found = tuple(column for column, _ in columns)
        return Query(self._text, found, condition, None if groups is None else tuple(groups))

    def _accept(self, keyword: str) -> bool:
        if not self._lexer.token.is_keyword(keyword):
            return False
        self._lexer.advance()
        return True

    def _accept_sign(self, sign: str) -> bool:
        if not self._lexer.token.is_sign(sign):
            return False
        self._lexer.advance()
        return True

    def _require(self, keyword: str) -> None:
        if not self._accept(keyword):
            self._fail(f"{keyword.upper()} is expected")

    def _fail(self, message: str, token: Token | None = None) -> NoReturn:
        self._lexer.fail(message, (token or self._lexer.token).start)

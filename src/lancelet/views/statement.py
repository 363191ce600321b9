"""Parse the query of a view.

    SELECT city, count(*) AS people, avg(age) AS age FROM source WHERE age > 17 GROUP BY city
    SELECT *, price * 2 AS twice, embed(title) AS vector FROM source
    SELECT s.id, d.name FROM source AS s LEFT JOIN products AS d ON s.k = d.id

The first table is always called `source`. Expressions have the syntax of filters. They are stored
as text and compiled for each version of the source. If tables are joined, each column is written
with its table: `k` becomes `source.k`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from lancelet.errors import ExpressionError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Column, Comparison, Expression, Operator
from lancelet.expr.lexer import Kind, Lexer, Token
from lancelet.expr.parse import parse
from lancelet.expr.traversal import children, with_children
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.values import dataclass
from lancelet.views.definition import (
    FUNCTIONS,
    HIDDEN,
    SOURCE,
    Aggregation,
    FunctionCall,
    Join,
    Query,
    ViewColumn,
)

_ENDS: Final = ("from", "where", "group", "having", "order", "limit", "union", "join")
_JOINS: Final = ("join", "left", "inner", "right", "full", "cross")
_UNSUPPORTED: Final = {
    "having": "filter the groups when the view is read",
    "order": "sort the rows when the view is read",
    "limit": "limit the rows when the view is read",
    "union": "create a view for each query",
    "right": "use JOIN or LEFT JOIN with the key of a table",
    "full": "use JOIN or LEFT JOIN with the key of a table",
    "cross": "use JOIN or LEFT JOIN with the key of a table",
}
_OPENING: Final = "(["
_CLOSING: Final = ")]"


def parse_query(
    text: str,
    names: Sequence[str],
    functions: Collection[str] = (),
    tables: Mapping[str, Sequence[str]] | None = None,
) -> Query:
    """Parse a query over a table with columns `names`.

    `functions` are the names of Python functions that the query may call, and `tables` the columns
    of the tables that it may join.

    >>> parse_query("SELECT a, sum(b) AS total FROM source GROUP BY a", ["a", "b"]).groups
    ('a',)
    """
    return _QueryParser(text, names, frozenset(functions), tables or {}).query()


class _WrittenJoin(NamedTuple):
    """A join as written, and the first token of its condition."""

    name: str
    table: str
    is_left: bool
    condition: str
    first: Token


@dataclass(frozen=True, slots=True)
class _All:
    """All columns of a table, or of all tables."""

    table: str | None


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """The names of tables in a query, and their columns; the first table is the source.

    With `qualifies`, columns are written with their table, otherwise without.
    """

    tables: Mapping[str, Sequence[str]]
    source: str
    qualifies: bool

    def of_text(self, text: str) -> str:
        """Return an expression with the names of the definition."""
        expression = parse(text)
        named = self.of(expression)
        return text if named == expression else str(named)

    def of(self, expression: Expression) -> Expression:
        """Return an expression with the names of the definition."""
        if isinstance(expression, Column):
            return Column(self._path(expression.path))
        parts = children(expression)
        return with_children(expression, tuple(map(self.of, parts))) if parts else expression

    def column(self, table: str, name: str) -> str:
        """Return the column of a table as an expression."""
        if not self.qualifies:
            return str(Column((name,)))
        return str(Column((SOURCE if table == self.source else table, name)))

    def _path(self, path: tuple[str, ...]) -> tuple[str, ...]:
        if not self.qualifies:
            own = self.tables[self.source]
            is_source = _is(path[0], self.source) or _is(path[0], SOURCE)
            is_named = len(path) > 1 and is_source and not _has(own, path[0])
            return path[1:] if is_named else path
        if len(path) > 1:
            for name in self.tables:
                if _is(path[0], name) or (name == self.source and _is(path[0], SOURCE)):
                    return (SOURCE if name == self.source else name, *path[1:])
        owners = [name for name, columns in self.tables.items() if _has(columns, path[0])]
        if path[0] in ROW_FIELDS and not owners:
            owners = [self.source]
        written = ".".join(path)
        if not owners:
            raise ExpressionError(
                f"no table of the query has a column {written}; the tables are "
                f"{', '.join(self.tables)}"
            )
        if len(owners) > 1:
            raise ExpressionError(
                f"several tables of the query have a column {written}; write "
                f"{' or '.join(f'{name}.{written}' for name in owners)}"
            )
        return (SOURCE if owners[0] == self.source else owners[0], *path)


def _is(written: str, name: str) -> bool:
    return written.lower() == name.lower()


def _has(columns: Sequence[str], name: str) -> bool:
    return any(_is(name, each) for each in columns)


class _QueryParser:
    """Splits a query into the texts of its expressions."""

    def __init__(
        self,
        text: str,
        names: Sequence[str],
        functions: frozenset[str],
        tables: Mapping[str, Sequence[str]],
    ) -> None:
        self._text = text
        self._own = names
        self._functions = functions
        self._given = tables
        self._tables: dict[str, Sequence[str]] = {}
        self._lexer = Lexer(text)

    def query(self) -> Query:
        """Return the query."""
        self._require("select")
        if self._lexer.token.is_keyword("distinct"):
            self._fail("DISTINCT is not supported; use GROUP BY with the columns")
        columns = self._columns()
        self._require("from")
        source = self._lexer.advance()
        if source.kind not in {Kind.NAME, Kind.QUOTED_NAME} or source.value.lower() != SOURCE:
            self._fail("the table of the query is called `source`", source)
        alias = self._alias(SOURCE)
        self._tables[alias] = self._own
        joins = list[_WrittenJoin]()
        while any(self._lexer.token.is_keyword(each) for each in ("join", "left", "inner")):
            joins.append(self._join())
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
        names = _Names(self._tables, alias, bool(joins))
        named = [
            (each, token) for column, token in columns for each in self._named(column, names, token)
        ]
        return self._checked(
            named,
            None if condition is None else names.of_text(condition),
            None if groups is None else [names.of_text(each) for each in groups],
            tuple(self._bound(names, join) for join in joins),
        )

    def _alias(self, otherwise: str) -> str:
        """Return the name of a table in the expressions of the query."""
        token = self._lexer.token
        is_next = any(token.is_keyword(each) for each in (*_ENDS, *_JOINS, "on", "using"))
        if not self._accept("as") and (token.kind not in {Kind.NAME, Kind.QUOTED_NAME} or is_next):
            return otherwise
        named = self._lexer.advance()
        if named.kind not in {Kind.NAME, Kind.QUOTED_NAME}:
            self._fail("a table name is expected after AS", named)
        return named.value

    def _join(self) -> _WrittenJoin:
        """Parse a join up to its condition."""
        is_left = self._accept("left")
        if is_left:
            self._accept("outer")
        else:
            self._accept("inner")
        self._require("join")
        table = self._lexer.advance()
        if table.kind not in {Kind.NAME, Kind.QUOTED_NAME}:
            self._fail("a table name is expected after JOIN", table)
        name = self._alias(table.value)
        given = next(
            (each for written in (table.value, name) for each in self._given if _is(written, each)),
            None,
        )
        if given is None:
            self._fail(f"pass the joined table as tables={{{name!r}: ...}}", table)
        if _is(name, SOURCE) or any(_is(name, each) for each in self._tables):
            self._fail("two tables of the query have the same name; rename one with AS", table)
        self._tables[name] = self._given[given]
        if self._lexer.token.is_keyword("using"):
            self._fail("USING is not supported; write ON source.k = d.k")
        first = self._lexer.token
        self._require("on")
        condition = self._expression("left", "inner", "right", "full", "cross")
        return _WrittenJoin(name, given, is_left, condition, first)

    def _bound(self, names: _Names, join: _WrittenJoin) -> Join:
        """Return a join; its condition must compare columns of the source and of the table."""
        parsed = names.of(parse(join.condition))
        keys = list[tuple[str, str]]()
        for part in parsed.operands if isinstance(parsed, ex.And) else (parsed,):
            match part:
                case Comparison(Operator.EQUAL, Column() as left, Column() as right):
                    pair = (left, right) if left.path[0] == SOURCE else (right, left)
                    if (pair[0].path[0], pair[1].path[0]) == (SOURCE, join.name):
                        keys.append((str(pair[0]), str(pair[1])))
                        continue
            self._fail(
                f"a join compares columns of the source with the key of the table, "
                f"for example ON {names.source}.k = {join.name}.id",
                join.first,
            )
        return Join(join.name, join.table, tuple(keys), join.is_left)

    def _all(self, names: _Names, written: str | None, token: Token) -> list[ViewColumn]:
        """Return the columns of a table, or of all tables."""
        tables = [each for each in self._tables if written is None or _is(each, written)]
        if not tables:
            self._fail("the query has no such table", token)
        return [
            ViewColumn(each, names.column(table, each))
            for table in tables
            for each in self._tables[table]
            if not each.startswith(HIDDEN)
        ]

    def _named(self, column: ViewColumn | _All, names: _Names, token: Token) -> list[ViewColumn]:
        """Return a column with the names of the definition; `*` as all columns."""
        if isinstance(column, _All):
            return self._all(names, column.table, token)
        match column.value:
            case Aggregation(_, None):
                return [column]
            case Aggregation(function, argument):
                value = Aggregation(function, names.of_text(str(argument)))
                return [ViewColumn(column.name, value)]
            case FunctionCall(function, arguments):
                called = FunctionCall(function, tuple(map(names.of_text, arguments)))
                return [ViewColumn(column.name, called)]
            case text:
                return [ViewColumn(column.name, names.of_text(str(text)))]

    def _columns(self) -> list[tuple[ViewColumn | _All, Token]]:
        found: list[tuple[ViewColumn | _All, Token]] = []
        while True:
            first = self._lexer.token
            if self._accept_sign("*"):
                found.append((_All(None), first))
            elif self._accept_table_star():
                found.append((_All(first.value), first))
            else:
                found.append((self._column(), first))
            if not self._accept_sign(","):
                return found

    def _column(self) -> ViewColumn:
        first = self._lexer.token
        call = self._call(first)
        text = self._text_since(first) if call else self._expression("as")
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
                self._fail(
                    "DISTINCT is not supported in aggregates of views; create a view that is "
                    "grouped by this column too, and count the rows of that view"
                )
            arguments = [self._expression()]
            while self._accept_sign(","):
                arguments.append(self._expression())
        if not self._accept_sign(")"):
            self._fail(") is expected")
        token = self._lexer.token
        is_whole = token.kind is Kind.END or token.is_sign(",")
        if not is_whole and not any(token.is_keyword(each) for each in (*_ENDS, "as")):
            self._fail(
                "aggregates and Python functions must be whole columns, with a name after AS; "
                "compute with their results when the view is read"
            )
        if is_function:
            return FunctionCall(first.value, tuple(arguments))
        if len(arguments) > 1:
            self._fail(f"{name} has one argument", first)
        return Aggregation(name, arguments[0] if arguments else None)

    def _text_since(self, first: Token) -> str:
        """Return the text from a token up to the current one."""
        return self._text[first.start : self._lexer.token.start].rstrip()

    def _expression(self, *ends: str) -> str:
        """Return the text up to a comma, a closing parenthesis or an ending keyword."""
        first, last, depth = self._lexer.token, None, 0
        while self._lexer.token.kind is not Kind.END:
            token = self._lexer.token
            is_field = last is not None and last.is_sign(".")
            if depth == 0 and not is_field:
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
        joins: tuple[Join, ...],
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
                    self._fail(
                        "a column must be an aggregate or an expression of GROUP BY",
                        token,
                    )
        found = tuple(column for column, _ in columns)
        keys = None if groups is None else tuple(groups)
        return Query(self._text, found, condition, keys, joins)

    def _accept_table_star(self) -> bool:
        """Accept `name.*`."""
        first = self._lexer.token
        is_name = first.kind in {Kind.NAME, Kind.QUOTED_NAME}
        if not is_name or not self._lexer.peek().is_sign("."):
            return False
        self._lexer.advance()
        self._lexer.advance()
        if self._accept_sign("*"):
            return True
        self._lexer.token = first
        return False

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

"""Determine the columns and the filter that a query needs of each Lance table.

    SELECT o.id, c.name
    FROM o LEFT JOIN c ON o.c = c.id AND c.age > 30
    WHERE o.day = DATE '2024-02-29'

    o   columns id c day    filter day = DATE '2024-02-29'
    c   columns name id age filter age > 30

A column is read if its name occurs anywhere in the text, except as a column of another table, or if
a star includes it. The result may contain unneeded columns but never misses one. A filter consists
of the conjuncts that refer to one table only: conjuncts of WHERE, unless an outer join can replace
rows of the table by nulls, and conjuncts of ON on sides that the join does not preserve.
Unsupported syntax reads everything and leaves the rest to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from lancelet.expr.scan_types import scan_field
from lancelet.format.schema import Schema
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.spark.sql.predicates import Translator, joined
from lancelet.spark.sql.source import Source
from lancelet.spark.types import has_collation, length_of
from lancelet.values import cached_property, dataclass

_UNSTABLE: Final = frozenset(
    {
        "RAND",
        "RANDN",
        "RANDOM",
        "RANDSTR",
        "UNIFORM",
        "UUID",
        "SHUFFLE",
        "MONOTONICALLY_INCREASING_ID",
        "SPARK_PARTITION_ID",
        "TABLESAMPLE",
        "TRANSFORM",
        "INPUT_FILE_NAME",
    }
)
_NO_NAMES: Final = frozenset(
    {
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
        "current_catalog",
        "current_schema",
        "current_database",
        "now",
    }
)
"""Names that are either a function without parentheses or a column."""
_ALL_COLUMNS: Final = (exp.Pivot, exp.QueryTransform)
ROWWISE: Final = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Alias,
    exp.Paren,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Neg,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Null,
    exp.Is,
    exp.Between,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Ordered,
    exp.Boolean,
    exp.Star,
)
"""Expressions with one value per row; all others are treated as possible aggregates."""


@dataclass(frozen=True)
class TableColumns:
    """The stored columns of a table that a query can name."""

    stored: tuple[pa.Field, ...]

    @staticmethod
    def of(schema: Schema) -> TableColumns:
        """Return the columns of a table with the types of a scan."""
        return TableColumns(tuple(scan_field(each) for each in schema.fields))

    def find(self, name: str) -> pa.Field | None:
        """Return the stored column with this case-insensitive name if it is unique, else None.

        A column with a collation or of type CHAR gets the null type, so that none of its
        comparisons is pushed down: Spark compares such values in its own way.
        """
        found = self.names.get(name.lower(), ())
        if len(found) != 1:
            return None
        is_plain = not has_collation(found[0]) and length_of(found[0]) is None
        return found[0] if is_plain else found[0].with_type(pa.null())

    @cached_property
    def names(self) -> Mapping[str, Sequence[pa.Field]]:
        """The columns by lower-case name."""
        found: dict[str, list[pa.Field]] = {}
        for each in self.stored:
            found.setdefault(each.name.lower(), []).append(each)
        return found


@dataclass(frozen=True, slots=True)
class SameKey:
    """A column that equals a column of another table in every row of the result."""

    column: str
    table: str
    other: str


@dataclass(frozen=True, slots=True)
class Use:
    """The pushdown of a table scan; `same` are join keys shared with other tables."""

    columns: tuple[str, ...]
    filter: str | None = None
    limit: int | None = None
    conditions: tuple[exp.Expression, ...] = field(default=(), compare=False)
    is_exact: bool = False
    same: tuple[SameKey, ...] = ()


def _used_columns(
    select: exp.Select, node: exp.Table, table: TableColumns, unclear: AbstractSet[str]
) -> list[str]:
    """Return the columns of a table that a SELECT or its subqueries name.

    Tokens in `unclear` count as names.
    """
    others = {
        each.alias_or_name.lower()
        for each in _others(select, node)
        if each.alias_or_name.lower() not in {node.alias_or_name.lower(), *table.names}
    }
    within = _identifiers(_scope(select), select, others) | unclear
    names = [each.name for each in table.stored if each.name.lower() in within]
    return names or ["_rowaddr"]


def _others(select: exp.Select, node: exp.Table) -> list[exp.Expression]:
    """Return the other tables and subqueries of the FROM clause of a table."""
    start = select.args.get("from_")
    sources = [] if start is None else [start.this]
    sources += [each.this for each in select.args.get("joins") or ()]
    if not any(each is node for each in sources):
        return []  # inside parentheses, whose alias may refer to this table as well
    named = (exp.Table, exp.Subquery)
    return [each for each in sources if each is not node and isinstance(each, named)]


def _identifiers(
    tree: exp.Expression,
    select: exp.Select | None = None,
    others: AbstractSet[str] = frozenset(),
) -> set[str]:
    """Return the names in a tree, except those of columns of other tables in a SELECT."""
    found: set[str] = set()
    for node in tree.find_all(exp.Identifier):
        column = node.parent
        is_of_other = (
            isinstance(column, exp.Column)
            and column.this is node
            and not column.args.get("db")
            and column.table.lower() in others
            and column.parent_select is select
        )
        if not is_of_other:
            found.update(_spellings(str(node.this)))
    return found


def row_columns(source: Source) -> list[str]:
    """Return the row columns, such as `_rowid`, that the text names."""
    texts = {token.text.lower() for token in source.tokens}
    return [name for name in ROW_FIELDS if name in texts]


def analyse(
    source: Source,
    tree: exp.Query | None,
    tables: Mapping[str, TableColumns],
    parameters: Mapping[str, Any],
) -> dict[str, Use]:
    """Return the pushdown of each table, keyed by its placeholder in the tree."""
    extra = row_columns(source)
    if tree is None or _is_unclear(source, tree):
        return {
            name: Use((*(each.name for each in table.stored), *extra))
            for name, table in tables.items()
        }
    table_nodes = _TableNodes.of(tree, tables)
    nodes = {node.name: node for each in table_nodes.by_select.values() for node in each}
    starred = set(_starred(tree, nodes))
    # A name in Spark may be a keyword of the parser. Tokens of the text count as names
    #     # if the tree has no such identifier.
    names = {each for token in source.tokens for each in _spellings(token.text)}
    unclear = names - (_identifiers(tree) - _NO_NAMES)
    is_stable = not any(token.word in _UNSTABLE for token in source.tokens)
    uses: dict[str, Use] = {}
    for name, table in tables.items():
        node = nodes.get(name)
        is_whole = name in starred
        chosen = (
            [each.name for each in table.stored]
            if node is None or is_whole or node.parent_select is None
            else _used_columns(node.parent_select, node, table, unclear)
        )
        use = Use(tuple(dict.fromkeys([*chosen, *extra])))
        if node is not None and is_stable:
            use = _narrowed(use, node, table_nodes, parameters)
        uses[name] = use
    return uses


@dataclass(frozen=True, slots=True)
class _TableNodes:
    """The tables of a query with known columns, grouped by the `id` of their SELECT."""

    columns: Mapping[str, TableColumns]
    by_select: Mapping[int, Sequence[exp.Table]]

    @staticmethod
    def of(tree: exp.Query, columns: Mapping[str, TableColumns]) -> _TableNodes:
        """Collect the tables in one walk of the tree."""
        tables_by_select: dict[int, list[exp.Table]] = {}
        for node in tree.find_all(exp.Table):
            if node.name in columns:
                tables_by_select.setdefault(id(node.parent_select), []).append(node)
        return _TableNodes(columns, tables_by_select)

    def within(self, select: exp.Expression) -> Sequence[exp.Table]:
        """Return the tables of one SELECT, without its subqueries."""
        return self.by_select.get(id(select), ())


def _scope(select: exp.Expression) -> exp.Expression:
    """Return a SELECT with its enclosing parentheses; ORDER BY may refer to its columns."""
    while isinstance(select.parent, exp.Subquery):
        select = select.parent
    return select


def _spellings(text: str) -> Iterator[str]:
    yield text.lower()
    if "`" in text:
        yield text.replace("``", "`").lower()


def _is_unclear(source: Source, tree: exp.Query) -> bool:
    """Return whether the text can refer to columns without naming them."""
    token_words = [token.word for token in source.tokens]
    calls_names = any(
        word == "IDENTIFIER" and after.kind == "L_PAREN"
        for word, after in zip(token_words, source.tokens[1:], strict=False)
    )
    pipes = any(
        one.kind == "PIPE" and two.kind == "GT" and one.stop == two.start
        for one, two in zip(source.tokens, source.tokens[1:], strict=False)
    )
    is_piped = pipes or any(token.text == "|>" for token in source.tokens)
    return calls_names or is_piped or tree.find(*_ALL_COLUMNS) is not None


def _starred(tree: exp.Query, nodes: Mapping[str, exp.Table]) -> Iterator[str]:
    """Yield the tables that are read with all columns because of a star or natural join."""
    for name, node in nodes.items():
        alias = node.args.get("alias")
        is_renamed = alias is not None and alias.args.get("columns")
        if is_renamed or node.parent_select is None or _has_natural_join(node.parent_select):
            yield name
    for star in tree.find_all(exp.Star):
        select = star.parent_select
        if select is None:
            yield from nodes
            continue
        parent = star.parent
        if isinstance(parent, exp.Count) and parent.this is star:
            continue
        if isinstance(select.parent, exp.Exists) and parent is select:
            continue
        qualifier = parent.table.lower() if isinstance(parent, exp.Column) else ""
        own = [name for name, node in nodes.items() if node.parent_select is select]
        named = [name for name, node in nodes.items() if node.alias_or_name.lower() == qualifier]
        yield from named
        if not set(own) & set(named):
            # An unknown qualifier may be the alias of parenthesized tables.
            yield from own


def _has_natural_join(select: exp.Expression) -> bool:
    return any(each.args.get("method") for each in select.args.get("joins") or ())


def _narrowed(
    use: Use,
    node: exp.Table,
    table_nodes: _TableNodes,
    parameters: Mapping[str, Any],
) -> Use:
    select = node.parent_select
    if not isinstance(select, exp.Select) or node.args.get("sample"):
        return use
    source_index = _source_index(select, node)
    if source_index is None:
        return use
    conditions = list(_conditions(select, source_index))
    translator = Translator(_finder(select, node, table_nodes), parameters)
    pushed = [translator.filter_of(each) for each in conditions]
    texts = [each.text for each in pushed if each is not None]
    is_exact = all(each is not None and each.is_exact for each in pushed)
    is_alone = not select.args.get("joins") and not select.args.get("laterals")
    limit = _limit(select) if is_alone and is_exact else None
    text = joined(texts) if texts else None
    same = tuple(_same_keys(conditions, select, node, table_nodes))
    return Use(use.columns, text, limit, tuple(conditions), is_exact and is_alone, same)


def _same_keys(
    conditions: Sequence[exp.Expression],
    select: exp.Select,
    node: exp.Table,
    table_nodes: _TableNodes,
) -> Iterator[SameKey]:
    """Yield the columns of a table that are restricted to the values of another table's column.

    The other table is in the same SELECT, in an enclosing one, or in an IN subquery.
    """
    find_column = _finder(select, node, table_nodes)
    for condition in conditions:
        pairs: list[tuple[exp.Expression, exp.Expression, exp.Expression]] = []
        if isinstance(condition, exp.EQ):
            one, two = condition.left, condition.right
            pairs = [(one, two, select), (two, one, select)]
        elif isinstance(condition, exp.In) and isinstance(
            condition.args.get("query"), exp.Subquery
        ):
            within = condition.args["query"].this
            if isinstance(within, exp.Select) and len(within.expressions) == 1:
                pairs = [(condition.this, within.expressions[0].unalias(), within)]
        for mine, other, scope in pairs:
            if not (isinstance(mine, exp.Column) and isinstance(other, exp.Column)):
                continue
            field, target = find_column(mine), _resolved(other, scope, table_nodes)
            if field is not None and target is not None and target[0] != node.name:
                table, theirs = target
                if theirs.type == field.type:
                    yield SameKey(field.name, table, theirs.name)


def _resolved(
    column: exp.Column, scope: exp.Expression | None, table_nodes: _TableNodes
) -> tuple[str, pa.Field] | None:
    """Return the table and column that a name refers to in a SELECT; None if ambiguous."""
    while isinstance(scope, exp.Select):
        nodes = table_nodes.within(scope)
        found = [(each.name, _finder(scope, each, table_nodes)(column)) for each in nodes]
        sure = [(name, field) for name, field in found if field is not None]
        if sure:
            return sure[0] if len(sure) == 1 else None
        start = scope.args.get("from_")
        sources = [] if start is None else [start.this]
        sources += [each.this for each in scope.args.get("joins") or ()]
        if scope.args.get("laterals") or any(each not in nodes for each in sources):
            return None  # may be a column of an unresolved source
        first = (column.table or column.name).lower()
        names = {each.alias_or_name.lower() for each in nodes}
        if first in names.union(*(table_nodes.columns[each.name].names for each in nodes)):
            return None
        scope = scope.parent_select
    return None


def _source_index(select: exp.Select, node: exp.Table) -> int | None:
    """Return the index of a table in a FROM clause: 0 for the first source, then the joins."""
    start = select.args.get("from_")
    if start is not None and start.this is node:
        return 0
    for number, join in enumerate(select.args.get("joins") or (), 1):
        if join.this is node:
            return number
    return None


def _conditions(select: exp.Select, source_index: int) -> Iterator[exp.Expression]:
    """Yield the conditions that all rows of a source must satisfy to reach the result."""
    may_be_null = False
    is_hidden = False
    found: list[exp.Expression] = []
    for number, join in enumerate(select.args.get("joins") or (), 1):
        side, kind = join.side.upper(), join.kind.upper()
        if join.args.get("method") or kind not in {"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"}:
            return
        on = join.args.get("on")
        is_new, is_before = number == source_index, number > source_index
        keeps_new = side in {"RIGHT", "FULL"}
        # ANTI without a side is a left anti join.
        keeps_before = kind == "ANTI" or (side in {"LEFT", "FULL"} and kind != "SEMI")
        if on is not None and (
            (is_new and not keeps_new) or (is_before and not keeps_before and not may_be_null)
        ):
            found += parts(on)
        if (is_new and keeps_before) or (is_before and keeps_new):
            may_be_null = True
        # The right side of a semi join is not visible in WHERE.
        is_hidden = is_hidden or (is_new and kind in {"SEMI", "ANTI"})
    yield from found
    where = select.args.get("where")
    if where is not None and not may_be_null and not is_hidden:
        yield from parts(where.this)


def parts(condition: exp.Expression) -> Iterable[exp.Expression]:
    """Yield the conjuncts of a condition."""
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.right, node.left]
        elif isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
            stack.append(node.this)
        else:
            yield node


def _finder(select: exp.Select, node: exp.Table, table_nodes: _TableNodes) -> Any:
    own = table_nodes.columns[node.name]
    others = [
        table_nodes.columns[each.name] for each in table_nodes.within(select) if each is not node
    ]
    alias = node.alias_or_name.lower()

    def find(column: exp.Column) -> pa.Field | None:
        if column.args.get("db") or not isinstance(column.this, exp.Identifier):
            return None
        if column.table:
            return own.find(column.name) if column.table.lower() == alias else None
        if any(column.name.lower() in each.names for each in others):
            return None
        return own.find(column.name)

    return find


def _is_of_one_row(node: exp.Expression) -> bool:
    """Return whether an expression certainly returns one value per row."""
    if isinstance(node, exp.Func):
        makes_others = (exp.AggFunc, exp.Anonymous, exp.Explode, exp.Posexplode, exp.Inline)
        return not isinstance(node, makes_others)
    return isinstance(node, ROWWISE)


def _limit(select: exp.Select) -> int | None:
    """Return the row limit of a SELECT if any rows that pass its condition may be returned."""
    names = ("group", "having", "distinct", "order", "sort", "cluster", "distribute", "qualify")
    limit, offset = select.args.get("limit"), select.args.get("offset")
    if limit is None or any(select.args.get(name) for name in (*names, "windows", "with_")):
        return None
    if not all(_is_of_one_row(node) for each in select.expressions for node in each.walk()):
        return None
    numbers = [limit.expression, *([] if offset is None else [offset.expression])]
    if not all(isinstance(each, exp.Literal) and each.this.isdigit() for each in numbers):
        return None
    return sum(int(each.this) for each in numbers)

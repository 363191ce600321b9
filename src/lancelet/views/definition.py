"""The definition of a view, as stored in the config of its table.

    lancelet.view    {"query": "SELECT city, count(*) AS people FROM source GROUP BY city",
                      "source": {"uri": "people.lance", "branch": null, "identity": "0-5f...txn"}}

The columns are stored next to the query, so that later columns of the source do not change `*`. If
tables are joined, expressions contain the table of each column: `source.city`, `d.country`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Final

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.scan.row_columns import RowColumn
from lancelet.values import dataclass

CONFIG_KEY: Final = "lancelet.view"
SEQUENCE: Final = "view"
"""The sequence of source versions, in the form of `lancelet.table.watermark`."""

SOURCE: Final = "source"
"""The name of the source in expressions."""

ROW_KEY: Final = "_source_row_id"
GROUP_KEY: Final = "_group_key"
HIDDEN: Final = (ROW_KEY, GROUP_KEY, "_group_rows", "_group_count_", "_group_sum_")
"""Names, and beginnings of names, of the columns that a view adds."""

_ROW_COLUMNS: Final = frozenset(each.value for each in RowColumn)

FUNCTIONS: Final = ("count", "sum", "min", "max", "avg")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate of an expression over the rows of a group; without expression, of the rows."""

    function: str
    argument: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a Python function that the application passes; arguments are expressions."""

    function: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view: an expression of source columns, an aggregate, or a function call."""

    name: str
    value: str | Aggregation | FunctionCall


@dataclass(frozen=True, slots=True)
class Join:
    """A table joined by its key, with at most one row for each row of the source.

    `name` is the name of the table in expressions, and `table` that in the arguments of
    `create_view`. `keys` are pairs of expressions, of the source and of the table, that are equal.
    If `is_left`, rows of the source without a match remain.
    """

    name: str
    table: str
    keys: tuple[tuple[str, str], ...]
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A query over a source. `groups` is None without `GROUP BY` and aggregates."""

    text: str
    columns: tuple[ViewColumn, ...]
    filter: str | None = None
    groups: tuple[str, ...] | None = None
    joins: tuple[Join, ...] = ()

    def __post_init__(self) -> None:
        """Raise if names are repeated or reserved."""
        seen: set[str] = set()
        for column in self.columns:
            if column.name in seen:
                raise InvalidInputError(
                    "two columns of the query have the same name; rename one with AS",
                    column=column.name,
                )
            if column.name.startswith(HIDDEN):
                raise InvalidInputError(
                    "the name is reserved for columns of views; choose another one with AS",
                    column=column.name,
                )
            if column.name in _ROW_COLUMNS:
                raise InvalidInputError(
                    "the name is that of a row column; choose another one with AS",
                    column=column.name,
                )
            seen.add(column.name)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The expressions of source columns that the query computes."""
        found = [*(self.groups or ()), *(() if self.filter is None else (self.filter,))]
        for column in self.columns:
            match column.value:
                case Aggregation(_, None):
                    pass
                case Aggregation(_, argument):
                    found.append(str(argument))
                case FunctionCall(_, arguments):
                    found += arguments
                case expression:
                    found.append(str(expression))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The source or a joined table of a view, and the identity of one of its versions."""

    uri: str
    branch: str | None
    version: int
    identity: str


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A query, its source and its joined tables by name."""

    query: Query
    source: SourceTable
    tables: Mapping[str, SourceTable] = field(default_factory=dict)

    def to_config(self) -> str:
        """Return the text for the table config."""
        query = self.query
        columns: list[dict[str, Any]] = []
        for column in query.columns:
            match column.value:
                case Aggregation(function, argument):
                    value: dict[str, Any] = {"aggregate": function, "argument": argument}
                case FunctionCall(function, arguments):
                    value = {"function": function, "arguments": list(arguments)}
                case expression:
                    value = {"expression": expression}
            columns.append({"name": column.name, **value})
        groups = None if query.groups is None else list(query.groups)
        stored = {
            "query": query.text,
            "columns": columns,
            "filter": query.filter,
            "groups": groups,
            "source": asdict(self.source),
        }
        if query.joins:
            stored["joins"] = [asdict(each) for each in query.joins]
            stored["tables"] = {name: asdict(each) for name, each in self.tables.items()}
        return json.dumps(stored)

    @staticmethod
    def of_config(config: Mapping[str, str], *, uri: str) -> ViewDefinition:
        """Return the definition in a table config, or raise if the table is no view."""
        text = config.get(CONFIG_KEY)
        if text is None:
            raise InvalidInputError(
                "the table is no materialised view; create one with `dataset.create_view`", uri=uri
            )
        try:
            stored = json.loads(text)
            groups = stored["groups"]
            return ViewDefinition(
                Query(
                    stored["query"],
                    tuple(_column(each) for each in stored["columns"]),
                    stored["filter"],
                    None if groups is None else tuple(groups),
                    tuple(_join(each) for each in stored.get("joins", ())),
                ),
                SourceTable(**stored["source"]),
                {name: SourceTable(**each) for name, each in stored.get("tables", {}).items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                "the definition of the view is damaged, or was written by a later release; "
                "create the view again",
                uri=uri,
                reason=str(error),
            ) from error


def _column(stored: Mapping[str, Any]) -> ViewColumn:
    name = stored["name"]
    if "aggregate" in stored:
        return ViewColumn(name, Aggregation(stored["aggregate"], stored["argument"]))
    if "function" in stored:
        return ViewColumn(name, FunctionCall(stored["function"], tuple(stored["arguments"])))
    return ViewColumn(name, stored["expression"])


def _join(stored: Mapping[str, Any]) -> Join:
    keys = tuple((own, other) for own, other in stored["keys"])
    return Join(stored["name"], stored["table"], keys, stored["is_left"])

"""A model of a table in plain Python, for comparison with a dataset.

    model = TableModel()                              columns id, n, s, f, p, tags; no rows
    model.insert(model.new_rows(ids=[1, 2], seed=7))
    model.delete(CONDITIONS["odd"])                   removes row 1
    model.table()                                     the expected rows, ordered by id

Rows are dicts by their unique `id`. The model has no files, fragments, field ids, versions or
indices. A condition is given in SQL and as a function of a row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Final

import pyarrow as pa

from lancelet.values import dataclass

Row = dict[str, Any]
"""The values of a row by column."""

ID: Final = "id"
STRUCT: Final = pa.struct([("x", pa.int64()), ("y", pa.string())])
COLUMNS: Final[dict[str, pa.DataType]] = {
    ID: pa.int64(),
    "n": pa.int32(),
    "s": pa.string(),
    "f": pa.float64(),
    "p": STRUCT,
    "tags": pa.list_(pa.string()),
}
WIDTHS: Final = (pa.int16(), pa.int32(), pa.int64())
"""Types that a number can be cast to and back, as values are small."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter and its columns."""

    sql: str
    needs: frozenset[str]
    holds: Callable[[Row], bool]


def _condition(sql: str, needs: str, holds: Callable[[Row], bool]) -> Condition:
    return Condition(sql, frozenset(needs.split()), holds)


CONDITIONS: Final = (
    _condition("id % 3 = 1", "id", lambda row: row["id"] % 3 == 1),
    _condition("id >= 12", "id", lambda row: row["id"] >= 12),
    _condition("id IN (0, 2, 5, 13, 21)", "id", lambda row: row["id"] in {0, 2, 5, 13, 21}),
    _condition("id = 4", "id", lambda row: row["id"] == 4),
    _condition("n IS NULL", "n", lambda row: row["n"] is None),
    _condition("n = 3", "n", lambda row: row["n"] == 3),
    _condition("NOT (n > 4)", "n", lambda row: row["n"] is not None and row["n"] <= 4),
    _condition("s = 'v2' OR s = 'w'", "s", lambda row: row["s"] in {"v2", "w"}),
    _condition("s LIKE 'v%'", "s", lambda row: (row["s"] or "").startswith("v")),
    _condition(
        "p.x > 4 AND n IS NOT NULL",
        "p n",
        lambda row: (
            row["p"] is not None
            and row["p"]["x"] is not None
            and row["p"]["x"] > 4
            and row["n"] is not None
        ),
    ),
)
"""Filters on the initial columns."""


@dataclass(frozen=True, slots=True)
class Nulls:
    """The nullable values of a table: 0.1 reads null texts as empty, 2.0 has no null structs."""

    values: bool = True
    structs: bool = True


def value_of(kind: pa.DataType, seed: int, nulls: Nulls) -> Any:
    """Return a seeded value of a type; every fifth is null.

    >>> [value_of(pa.int32(), seed, Nulls()) for seed in (3, 4, 5)]
    [3, None, 5]
    """
    if seed % 5 == 4 and (nulls.structs if pa.types.is_struct(kind) else nulls.values):
        return None
    if pa.types.is_integer(kind):
        return seed % 7
    if pa.types.is_floating(kind):
        return seed / 2
    if pa.types.is_string(kind):
        return "" if seed % 6 == 0 and nulls.values else f"v{seed % 4}"
    if pa.types.is_list(kind):
        return [f"t{item % 3}" for item in range(seed, seed + seed % 3)]
    return {
        part.name: value_of(part.type, seed + position, nulls) for position, part in enumerate(kind)
    }


@dataclass
class TableModel:
    """The columns and rows of a table.

    Attributes:
        types: The type of each column, in order.
        nulls: Which values may be null.
        rows: The rows by their `id`.
    """

    types: dict[str, pa.DataType] = field(default_factory=lambda: dict(COLUMNS))
    nulls: Nulls = field(default_factory=Nulls)
    rows: dict[int, Row] = field(default_factory=dict)

    def copy(self) -> TableModel:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def schema(self, names: Iterable[str] | None = None) -> pa.Schema:
        """Return the schema of all or the given columns."""
        return pa.schema([(name, self.types[name]) for name in names or self.types])

    def table(self) -> pa.Table:
        """Return all rows ordered by id."""
        return pa.Table.from_pylist([self.rows[key] for key in sorted(self.rows)], self.schema())

    def matching(self, condition: Condition | None) -> list[int]:
        """Return the sorted ids of rows that match a condition, or of all rows."""
        return sorted(
            key for key, row in self.rows.items() if condition is None or condition.holds(row)
        )

    def has(self, condition: Condition) -> bool:
        """Whether the columns of a condition exist with the expected types."""
        return all(
            name in self.types
            and (
                self.types[name] == COLUMNS[name]
                or (name == "n" and pa.types.is_integer(self.types[name]))
            )
            for name in condition.needs
        )

    def new_rows(
        self, ids: Iterable[int], seed: int, names: Iterable[str] | None = None
    ) -> list[Row]:
        """Return rows with these ids and columns and seeded values."""
        names = list(names or self.types)
        return [
            {
                name: key if name == ID else value_of(kind, key + seed + position, self.nulls)
                for position, (name, kind) in enumerate(self.types.items())
                if name in names
            }
            for key in ids
        ]

    def insert(self, rows: Iterable[Row]) -> None:
        """Insert or replace rows by id; missing columns are null."""
        for row in rows:
            self.rows[row[ID]] = {name: copy.deepcopy(row.get(name)) for name in self.types}

    def set_values(self, ids: Iterable[int], name: str, new: Callable[[Row], Any]) -> None:
        """Update a column in some rows."""
        for key in ids:
            self.rows[key] = {**self.rows[key], name: new(self.rows[key])}

    def delete(self, ids: Iterable[int]) -> None:
        """Remove rows."""
        for key in ids:
            del self.rows[key]

    def add_column(self, name: str, kind: pa.DataType, new: Callable[[Row], Any]) -> None:
        """Append a column."""
        self.types[name] = kind
        for row in self.rows.values():
            row[name] = new(row)

    def rename_column(self, name: str, new_name: str) -> None:
        """Rename a column and keep its position."""
        self.types = {new_name if key == name else key: kind for key, kind in self.types.items()}
        self.rows = {
            key: {(new_name if each == name else each): value for each, value in row.items()}
            for key, row in self.rows.items()
        }

    def drop_column(self, name: str) -> None:
        """Drop a column."""
        del self.types[name]
        for row in self.rows.values():
            del row[name]

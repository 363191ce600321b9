"""Aggregate the rows of a scan, in total or by group.

    groups (x), measures count(*), sum(y)        x 1, 1, 2   y 5, 6, 7
                                                 x 1  count 2  sum 11
                                                 x 2  count 1  sum  7

All measures except `count(*)` ignore nulls; the sum of no values is null. Null is a separate group.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.values import dataclass

_FUNCTIONS: Final = {"count": "count", "sum": "sum", "min": "min", "max": "max", "avg": "mean"}


class MeasureError(InvalidInputError, UnsupportedError):
    """A measure is unknown, or does not support the type of its column."""


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate function of a column; without a column, of the rows."""

    function: str
    column: str | None = None
    is_distinct: bool = False

    def __post_init__(self) -> None:
        """Raise if the function is unknown or does not support the arguments."""
        if self.function not in _FUNCTIONS:
            raise MeasureError("unknown measure", found=self.function, expected=list(_FUNCTIONS))
        if self.is_distinct and self.function not in {"count", "min", "max"}:
            raise MeasureError(
                "only count, min and max support distinct values", function=self.function
            )
        if self.column is None and self.function != "count":
            raise MeasureError(
                "a measure other than count requires a column", function=self.function
            )

    @property
    def title(self) -> str:
        """The name of the result column; the same as in pylance."""
        distinct = "DISTINCT " if self.is_distinct else ""
        return f"{self.function}({distinct}{self.column or 'Int64(1)'})"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Measures by group; `names` replaces the names of the first result columns."""

    groups: tuple[str, ...]
    measures: tuple[Measure, ...]
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The input columns, without duplicates."""
        of_measures = (each.column for each in self.measures if each.column is not None)
        return list(dict.fromkeys((*self.groups, *of_measures)))

    def of(self, rows: pa.Table) -> pa.Table:
        """Aggregate the rows of a table.

        >>> rows = pa.table({"x": [1, 1, 2], "y": [5, 6, 7]})
        >>> Aggregate(("x",), (Measure("sum", "y"),)).of(rows).to_pydict()
        {'x': [1, 2], 'sum(y)': [11, 7]}
        """
        measures = list(dict.fromkeys(self.measures))
        aggregations = [_to_arrow(each) for each in measures]
        try:
            result = rows.group_by(list(self.groups), use_threads=False).aggregate(aggregations)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise MeasureError(
                f"cannot aggregate the rows: {error}",
                measures=[each.title for each in self.measures],
            ) from error
        # Columns are selected by index, keys first: measure names may collide with key names.
        keys = result.columns[: len(self.groups)]
        by_measure = dict(zip(measures, result.columns[len(keys) :], strict=True))
        values = [by_measure[each] for each in self.measures]
        titles = [*self.groups, *(each.title for each in self.measures)]
        titles[: len(self.names)] = self.names[: len(titles)]
        counts = [False] * len(keys) + [each.function == "count" for each in self.measures]
        columns = [*keys, *values]
        schema = pa.schema(
            [
                pa.field(title, column.type, nullable=not is_count)
                for title, column, is_count in zip(titles, columns, counts, strict=True)
            ]
        )
        return pa.Table.from_arrays(columns, schema=schema)


def _to_arrow(measure: Measure) -> tuple[object, str, pc.FunctionOptions | None]:
    if measure.column is None:
        return [], "count_all", None
    if measure.is_distinct and measure.function == "count":
        return measure.column, "count_distinct", pc.CountOptions(mode="only_valid")
    return measure.column, _FUNCTIONS[measure.function], None

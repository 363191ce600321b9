"""Counts, sums and the like of the rows of a scan, over all of them or by group.

    groups (x), measures count(*), sum(y)        x 1, 1, 2   y 5, 6, 7
                                                 x 1  count 2  sum 11
                                                 x 2  count 1  sum  7

Nulls are in no measure but the count of rows; a sum of nothing is null. Null is a group of its own.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.values import dataclass

_FUNCTIONS: Final = {"count": "count", "sum": "sum", "min": "min", "max": "max", "avg": "mean"}


class MeasureError(InvalidInputError, UnsupportedError):
    """A measure is not known, or not for values of that type."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A function of the values of a column; without one it is of the rows themselves."""

    function: str
    column: str | None = None
    is_distinct: bool = False

    def __post_init__(self) -> None:
        """Refuse functions that are not known."""
        if self.function not in _FUNCTIONS:
            raise MeasureError(
                "no measure has that name", found=self.function, known=list(_FUNCTIONS)
            )
        if self.is_distinct and self.function not in {"count", "min", "max"}:
            raise MeasureError("only counts can be of distinct values", function=self.function)
        if self.column is None and self.function != "count":
            raise MeasureError("only a count needs no column", function=self.function)

    @property
    def title(self) -> str:
        """The name of the result, as pylance gives it."""
        distinct = "DISTINCT " if self.is_distinct else ""
        return f"{self.function}({distinct}{self.column or 'Int64(1)'})"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Measures by group; `names` are those of the columns of the result, as far as they go."""

    groups: tuple[str, ...]
    measures: tuple[Measure, ...]
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        of_measures = (each.column for each in self.measures if each.column is not None)
        return list(dict.fromkeys((*self.groups, *of_measures)))

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the measures of rows.

        >>> rows = pa.table({"x": [1, 1, 2], "y": [5, 6, 7]})
        >>> Aggregate(("x",), (Measure("sum", "y"),)).of(rows).to_pydict()
        {'x': [1, 2], 'sum(y)': [11, 7]}
        """
        measures = list(dict.fromkeys(self.measures))
        asked = [_asked(each) for each in measures]
        try:
            found = rows.group_by(list(self.groups), use_threads=False).aggregate(asked)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise MeasureError(
                f"the rows cannot be measured: {error}",
                measures=[each.title for each in self.measures],
            ) from error
        # Arrow's names may be those of keys, so columns are taken by their places: keys are first.
        keys = found.columns[: len(self.groups)]
        by_measure = dict(zip(measures, found.columns[len(keys) :], strict=True))
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


def _asked(measure: Measure) -> tuple[object, str, pc.FunctionOptions | None]:
    if measure.column is None:
        return [], "count_all", None
    if measure.is_distinct and measure.function == "count":
        return measure.column, "count_distinct", pc.CountOptions(mode="only_valid")
    return measure.column, _FUNCTIONS[measure.function], None

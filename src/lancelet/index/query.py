"""Queries that filters send to an index.

    x > 3 AND x <= 7        Interval(3, 7, includes_lower=False)
    x = 5, x IN (5, 9)      OneOf([5, 9])
    x LIKE 'ab%'            StartsWith("ab")

Values have the type of the indexed column. Only `IsNull` matches nulls: all other queries exclude
them, and so do their negations.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Values between two bounds. None means unbounded."""

    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None
    includes_lower: bool = True
    includes_upper: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Values equal to one of these non-null values."""

    values: pa.Array


@dataclass(frozen=True, slots=True)
class IsNull:
    """Null values."""


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Strings or binary values with this prefix."""

    prefix: bytes


@dataclass(frozen=True, slots=True)
class Contains:
    """Strings that contain this substring."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class HasAny:
    """Lists that contain at least one of these elements."""

    values: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class HasAll:
    """Lists that contain all of these elements."""

    values: pa.Array


@dataclass(frozen=True, slots=True)
class Intersects:
    """Geometries with a bounding box that intersects this one."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def intersects(self, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return a mask of the boxes (xmin, ymin, xmax, ymax) that intersect this one."""
        mask: npt.NDArray[np.bool_] = (
            (boxes[:, 0] <= self.xmax)
            & (boxes[:, 2] >= self.xmin)
            & (boxes[:, 1] <= self.ymax)
            & (boxes[:, 3] >= self.ymin)
        )
        return mask


def query_type(query: ScalarQuery) -> pa.DataType | None:
    """Return the value type of a query, or None if it applies to any type.

    >>> query_type(StartsWith(b"a"))
    DataType(string)
    """
    match query:
        case Interval(lower, upper):
            bound = upper if lower is None else lower
            return None if bound is None else bound.type
        case OneOf(values) | HasAny(values) | HasAll(values):
            return values.type
        case IsNull() | Intersects():
            return None
        case StartsWith() | Contains():
            return pa.string()
    assert_never(query)


ScalarQuery: TypeAlias = (
    Interval | OneOf | IsNull | StartsWith | Contains | HasAny | HasAll | Intersects
)

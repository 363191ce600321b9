"""What filters ask of an index.

    x > 3 AND x <= 7        Interval(3, 7, includes_lower=False)
    x = 5, x IN (5, 9)      OneOf([5, 9])
    x LIKE 'ab%'            StartsWith("ab")

Values have the type of the indexed column. No question is about nulls but `IsNull`; the answer to
any other leaves them out, and so does the answer to its negation.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Values between two bounds; a bound that is None is beyond every value."""

    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None
    includes_lower: bool = True
    includes_upper: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Values that equal one of these, none of which is null."""

    values: pa.Array


@dataclass(frozen=True, slots=True)
class IsNull:
    """No value."""


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Texts, or byte strings, with this beginning."""

    prefix: bytes


@dataclass(frozen=True, slots=True)
class Contains:
    """Texts with this in them."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class HasAny:
    """Lists with at least one of these elements."""

    values: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class HasAll:
    """Lists with every one of these elements."""

    values: pa.Array


@dataclass(frozen=True, slots=True)
class Meets:
    """Geometries whose box has a place in common with this one."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def meets(self, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return which boxes do, each of which is xmin, ymin, xmax, ymax."""
        found: npt.NDArray[np.bool_] = (
            (boxes[:, 0] <= self.xmax)
            & (boxes[:, 2] >= self.xmin)
            & (boxes[:, 1] <= self.ymax)
            & (boxes[:, 3] >= self.ymin)
        )
        return found


def type_of(question: Question) -> pa.DataType | None:
    """Return the type of the values that are asked about, or None if it is any.

    >>> type_of(StartsWith(b"a"))
    DataType(string)
    """
    match question:
        case Interval(lower, upper):
            bound = upper if lower is None else lower
            return None if bound is None else bound.type
        case OneOf(values) | HasAny(values) | HasAll(values):
            return values.type
        case IsNull() | Meets():
            return None
        case StartsWith() | Contains():
            return pa.string()
    assert_never(question)


Question: TypeAlias = Interval | OneOf | IsNull | StartsWith | Contains | HasAny | HasAll | Meets

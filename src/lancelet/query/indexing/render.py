"""What indices are asked, as plans show it.

age BETWEEN 3 AND 7      [age >= 3 && age <= 7]@by_age(BTree)
NOT (city = 'Rome')      NOT([city = Rome]@by_city(Bitmap))
both                     AND(.., ..)
"""

from __future__ import annotations

from typing import Final, assert_never

import pyarrow as pa

from lancelet.index.question import (
    Contains,
    HasAll,
    HasAny,
    Interval,
    IsNull,
    Meets,
    OneOf,
    Question,
    StartsWith,
)
from lancelet.query.indexing.choose import Asked, Part
from lancelet.query.indexing.probes import WITHIN

_VALUES_SHOWN: Final = 20
_BYTES_SHOWN: Final = 10


def render_part(part: Part) -> str:
    """Return what is asked of which indices."""
    if isinstance(part, Asked):
        column = ".".join(part.index.path).replace(f".{WITHIN}.", "->")
        asked = f"[{_question(part.question, column)}]@{part.index.name}"
        shown = f"{asked}({part.index.segments[0].kind.title})"
        return f"NOT({shown})" if part.is_negated else shown
    joined = render_part(part.parts[0])
    for each in part.parts[1:]:
        joined = f"{'AND' if part.is_all else 'OR'}({joined},{render_part(each)})"
    return joined


def _question(question: Question, column: str) -> str:
    match question:
        case Interval(lower, upper, includes_lower, includes_upper):
            bounds = []
            if lower is not None:
                bounds.append(f"{column} {'>=' if includes_lower else '>'} {_shown(lower)}")
            if upper is not None:
                bounds.append(f"{column} {'<=' if includes_upper else '<'} {_shown(upper)}")
            return " && ".join(bounds)
        case OneOf(values):
            if len(values) == 1:
                return f"{column} = {_shown(values[0])}"
            return f"{column} IN [{_listed(values)}]"
        case IsNull():
            return f"{column} IS NULL"
        case StartsWith(prefix):
            return f"{column} LIKE '{prefix.decode(errors='replace')}%'"
        case Contains(text):
            return f'contains({column}, Utf8("{text}"))'
        case HasAny(values):
            return f"array_has_any({column}, List([{_listed(values)}]))"
        case HasAll(values):
            return f"array_has_all({column}, List([{_listed(values)}]))"
        case Meets(xmin, ymin, xmax, ymax):
            return f"{column} meets BOX({xmin} {ymin}, {xmax} {ymax})"
    assert_never(question)


def _listed(values: pa.Array) -> str:
    shown = [_shown(value) for value in values[:_VALUES_SHOWN]]
    rest = len(values) - len(shown)
    return ", ".join([*shown, f"and {rest} more"] if rest else shown)


def _shown(value: pa.Scalar) -> str:
    found = value.as_py()
    if isinstance(found, bytes):
        return found[:_BYTES_SHOWN].hex() + "..." * (len(found) > _BYTES_SHOWN)
    return str(value).lower() if isinstance(found, bool) else str(value)

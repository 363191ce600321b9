"""Filters that compare columns with plain constants, which are asked again and again.

    id = 5                  Plain("id", =, 5)       of int32: Comparison(=, id, 5)
    n >= 3 AND s < 'ab'     Plain("n", >=, 3), Plain("s", <, "ab")
    id = 5 + 1              none: read by the parser, like everything else

This is a short cut for what `compile_filter` does. Whoever takes it compiles one filter of each
form in both ways first, and takes it for later constants only if both gave the same.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from lancelet.query import expression as ex
from lancelet.query.data_types import is_text
from lancelet.query.expression import Comparison, Operator
from lancelet.values import dataclass

_PART: Final = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=|<=|>=|<|>)\s*(?:(-?[0-9]{1,18})|'([^'\\]{0,256})')"
    r"(?:\s*\Z|(\s+(?i:and)\s))"
)
_OPERATORS: Final = {
    "=": Operator.EQUAL,
    "<": Operator.LESS,
    "<=": Operator.LESS_EQUAL,
    ">": Operator.GREATER,
    ">=": Operator.GREATER_EQUAL,
}


@dataclass(frozen=True, slots=True)
class Plain:
    """A comparison as it was written: the constant is a number or a text."""

    column: str
    operator: Operator
    constant: int | str

    @property
    def form(self) -> tuple[str, Operator, type]:
        """What comparisons have in common that differ in their constant."""
        return self.column, self.operator, type(self.constant)

    def bound(self, data_type: pa.DataType) -> Comparison | None:
        """Return the comparison with a column of a type, or None if it takes thought."""
        value: Any = self.constant
        if isinstance(value, int):
            if not pa.types.is_integer(data_type) or not _is_inside(value, data_type):
                return None
        elif not is_text(data_type):
            return None
        column = ex.Column((self.column,))
        return Comparison(self.operator, column, ex.literal(value, data_type))


def read_plain(text: str) -> tuple[Plain, ...]:
    """Return the comparisons that a filter joins by AND, or none if it has another form.

    >>> read_plain("id >= -5"), read_plain("id = 5 + 1")
    ((Plain(column='id', operator=<Operator.GREATER_EQUAL: '>='>, constant=-5),), ())
    """
    parts = []
    found = _PART.match(text)
    while found is not None:
        column, sign, number, letters, joined = found.groups()
        constant = letters if number is None else int(number)
        parts.append(Plain(column, _OPERATORS[sign], constant))
        if joined is None:
            return tuple(parts)
        found = _PART.match(text, found.end())
    return ()


def _is_inside(value: int, data_type: pa.DataType) -> bool:
    """Say whether a number is neither beyond a type nor its least or greatest value."""
    bits: int = data_type.bit_width
    if pa.types.is_unsigned_integer(data_type):
        return 0 < value < (1 << bits) - 1
    return -(1 << bits - 1) < value < (1 << bits - 1) - 1

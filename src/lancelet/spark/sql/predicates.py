"""Translation of the conditions of a query to filters of a table.

    l_shipdate < DATE '1995-01-01' + INTERVAL '1' MONTH     `l_shipdate` < DATE '1995-02-01'
    (a = 1 AND o.b = 2) OR (a = 3 AND o.b = 4)              `a` = 1 OR `a` = 3, which is implied
    a = rand()                                              nothing

Spark evaluates its conditions again on the rows it receives, so a filter may return more rows than
the condition, never fewer. `is_exact` means that both select the same rows. A comparison is pushed
down only if Spark and a scan order the values of the column's type in the same way. Constants whose
cast depends on the session's time zone or loses information are left to Spark.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from sqlglot import exp

from lancelet.values import dataclass

_COMPARISONS: Final[dict[type[exp.Expression], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_SWAPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_FLOAT: Final = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_PLAIN_TEXT: Final = re.compile(r"[^'\"\\\x00-\x1f]*")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?")
_ZONED: Final = re.compile(_TIME.pattern + r"(?:Z|[+-]\d{2}:\d{2})")
_EXACT_FLOAT_INTEGERS: Final = 1 << 53
_DECIMAL_DIGITS_MAX: Final = 38
_SMALL: Final = 1 << 30
_SMALL_DIGITS: Final = 12
_INT_TYPES: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_DAYS: Final = {"DAY": 1, "WEEK": 7}
_MONTHS: Final = {"MONTH": 1, "YEAR": 12, "QUARTER": 3}

Find = Callable[[exp.Column], pa.Field | None]
"""Returns the field of the table that a column of the query is, or None if it may be another."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A filter, and whether it selects the same rows as the original condition."""

    text: str
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Translator:
    """Makes filters of a table from conditions; `parameters` are the values of `:name`."""

    find: Find
    parameters: Mapping[str, Any]

    def filter_of(self, condition: exp.Expression) -> Pushed | None:
        """Return a filter that is true wherever the condition is, or None."""
        match condition:
            case exp.Paren():
                return self.filter_of(condition.this)
            case exp.And():
                found = [self.filter_of(condition.left), self.filter_of(condition.right)]
                translated = [each for each in found if each is not None]
                if not translated:
                    return None
                is_exact = len(translated) == 2 and all(each.is_exact for each in translated)
                return Pushed(joined([each.text for each in translated]), is_exact)
            case exp.Or():
                left, right = self.filter_of(condition.left), self.filter_of(condition.right)
                if left is None or right is None:
                    return None
                is_exact = left.is_exact and right.is_exact
                return Pushed(f"({left.text}) OR ({right.text})", is_exact)
            case exp.Not():
                found_one = self.filter_of(condition.this)
                if found_one is None or not found_one.is_exact:
                    return None
                return Pushed(f"NOT ({found_one.text})")
        text = self._leaf(condition)
        return None if text is None else Pushed(text)

    def _leaf(self, node: exp.Expression) -> str | None:
        match node:
            case exp.Column():
                field = self.find(node)
                is_boolean = field is not None and kinds.is_boolean(_compared(field))
                return _quoted(field) if is_boolean and field is not None else None
            case exp.In() if _has_only(node, "this", "expressions"):
                return self._membership(node)
            case exp.Between() if _has_only(node, "this", "low", "high"):
                low = self._compared(">=", node.this, node.args["low"])
                high = self._compared("<=", node.this, node.args["high"])
                return None if low is None or high is None else f"({low}) AND ({high})"
            case exp.Is() if _has_only(node, "this", "expression"):
                return self._is(node)
            case exp.Like() if _has_only(node, "this", "expression", "negate"):
                return self._like(node)
            case exp.StartsWith() if _has_only(node, "this", "expression"):
                column, text = self._column(node.this), self._text(node.expression)
                if column is None or text is None or not is_text(_compared(column)):
                    return None
                return f"starts_with({_quoted(column)}, {text})"
        sign = _COMPARISONS.get(type(node))
        if sign is None or not _has_only(node, "this", "expression"):
            return None
        return self._compared(sign, node.this, node.args["expression"])

    def _compared(self, sign: str, left: exp.Expression, right: exp.Expression) -> str | None:
        column, other = self._column(left), self._column(right)
        if column is not None and other is not None:
            is_comparable_pair = _compared(column) == _compared(other) and is_comparable(
                _compared(column)
            )
            return f"{_quoted(column)} {sign} {_quoted(other)}" if is_comparable_pair else None
        if column is None:
            if other is None:
                return None
            return self._compared(_SWAPPED.get(sign, sign), right, left)
        constant = self.constant(right, _compared(column))
        return None if constant is None else f"{_quoted(column)} {sign} {constant}"

    def _membership(self, node: exp.In) -> str | None:
        column = self._column(node.this)
        if column is None or not node.expressions:
            return None
        found = [self.constant(each, _compared(column)) for each in node.expressions]
        translated = [each for each in found if each is not None]
        # Without ANSI mode, Spark casts the times to texts here.
        has_texts = any(isinstance(self._value(each), str) for each in node.expressions)
        if len(translated) < len(found) or (has_texts and kinds.is_timestamp(_compared(column))):
            return None
        return f"{_quoted(column)} IN ({', '.join(translated)})"

    def _is(self, node: exp.Is) -> str | None:
        column = self._column(node.this)
        if column is None:
            return None
        match node.expression:
            case exp.Null():
                return f"{_quoted(column)} IS NULL"
            case exp.Boolean(this=bool() as value) if kinds.is_boolean(_compared(column)):
                return f"{_quoted(column)} IS {'TRUE' if value else 'FALSE'}"
        return None

    def _like(self, node: exp.Like) -> str | None:
        column, pattern = self._column(node.this), self._text(node.expression)
        if column is None or pattern is None or not is_text(_compared(column)) or "_" in pattern:
            return None
        return f"{_quoted(column)} {'NOT ' if node.args.get('negate') else ''}LIKE {pattern}"

    def _column(self, node: exp.Expression) -> pa.Field | None:
        while isinstance(node, exp.Paren):
            node = node.this
        return self.find(node) if isinstance(node, exp.Column) else None

    def _text(self, node: exp.Expression) -> str | None:
        value = self._value(node)
        return _text_of(value) if isinstance(value, str) else None

    def constant(self, node: exp.Expression, data_type: pa.DataType) -> str | None:
        """Return a constant of a query as one of a filter on a column of a type, or None."""
        return self.text_of(self._value(node), data_type)

    def text_of(self, value: Any, data_type: pa.DataType) -> str | None:
        """Return a value as a constant of a filter on a column of a type, or None."""
        match value:
            case bool():
                return str(value).upper() if kinds.is_boolean(data_type) else None
            case int() | Decimal() | float():
                return _number_of(value, data_type)
            case datetime():
                return _time_of(value, data_type)
            case date():
                if kinds.is_date32(data_type):
                    return f"DATE '{value.isoformat()}'"
                is_plain = kinds.is_timestamp(data_type) and data_type.tz is None
                return f"TIMESTAMP '{value.isoformat()} 00:00:00'" if is_plain else None
            case str():
                return _text_for(value, data_type)
        return None

    def _value(self, node: exp.Expression) -> Any:
        """Return the Python value of a constant that means the same in every session, or None."""
        match node:
            case exp.Paren():
                return self._value(node.this)
            case exp.Boolean():
                return bool(node.this)
            case exp.Literal(is_string=True):
                return node.this if _PLAIN_TEXT.fullmatch(node.this) else None
            case exp.Literal():
                return _read_number(node.this)
            case exp.Neg():
                value = self._value(node.this)
                is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
                return -value if is_number else None
            case exp.Placeholder() if isinstance(node.this, str):
                return self.parameters.get(node.this)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Add() | exp.Sub():
                return self._moved(node)
        return None

    def _cast(self, node: exp.Cast) -> Any:
        name = node.to.this.name if isinstance(node.to, exp.DataType) else ""
        inner = node.this
        if isinstance(inner, exp.Literal) and inner.is_string:
            match name:
                case "DATE" if _DATE.fullmatch(inner.this):
                    return _day(inner.this)
                case "TIMESTAMPNTZ" if _TIME.fullmatch(inner.this):
                    return _instant(inner.this)
                case "TIMESTAMPTZ" | "TIMESTAMPLTZ" | "TIMESTAMP" if _ZONED.fullmatch(inner.this):
                    return _instant(inner.this)
                case "DECIMAL" if _NUMBER.fullmatch(inner.this) and _fits(inner.this, node.to):
                    return Decimal(inner.this)
            return None
        if not isinstance(inner, exp.Literal):
            return None
        if name in _INT_TYPES and inner.this.isdigit():
            width = 8 << _INT_TYPES.index(name)
            value = int(inner.this)
            return value if value < 1 << (width - 1) else None
        if name == "DOUBLE" and _FLOAT.fullmatch(inner.this):
            return float(inner.this)
        return None

    def _moved(self, node: exp.Add | exp.Sub) -> Any:
        """Return a day plus or minus an interval, or a sum of constants that Spark has exactly."""
        start = self._value(node.left)
        sign = 1 if isinstance(node, exp.Add) else -1
        if _is_small(start):
            amount = self._value(node.right)
            return start + sign * amount if _is_small(amount) else None
        if not isinstance(start, date) or isinstance(start, datetime):
            return None
        other = node.right
        try:
            if isinstance(other, exp.Interval) and _has_only(other, "this", "unit"):
                unit = other.unit.name.upper().removesuffix("S") if other.unit else ""
                amount = sign * int(other.this.name)
                if unit in _DAYS:
                    return start + timedelta(days=amount * _DAYS[unit])
                if unit in _MONTHS:
                    return _add_months(start, amount * _MONTHS[unit])
                return None
            amount = self._value(other)
            if isinstance(amount, int) and not isinstance(amount, bool):
                return start + timedelta(days=sign * amount)
        except (ValueError, OverflowError):
            return None
        return None


def membership(field: pa.Field, values: Sequence[Any]) -> str | None:
    """Return a filter for the rows in which a column has one of the values, or None."""
    translator = Translator(lambda _: None, {})
    texts = [translator.text_of(value, field.type) for value in values]
    if None in texts:
        return None
    return f"{_quoted(field)} IN ({', '.join(filter(None, texts))})" if texts else "false"


def joined(conditions: Sequence[str]) -> str:
    """Return the condition that all of some conditions are."""
    if len(conditions) == 1:
        return conditions[0]
    return " AND ".join(f"({each})" for each in conditions)


def is_comparable(data_type: pa.DataType) -> bool:
    """Return whether Spark and a scan order the values of a type in the same way."""
    return bool(
        kinds.is_boolean(data_type)
        or is_whole(data_type)
        or kinds.is_float32(data_type)
        or kinds.is_float64(data_type)
        or kinds.is_decimal128(data_type)
        or is_text(data_type)
        or kinds.is_date32(data_type)
        or (kinds.is_timestamp(data_type) and data_type.unit != "ns")
    )


def is_whole(data_type: pa.DataType) -> bool:
    """Return whether a type is an integer type in Spark too."""
    return bool(kinds.is_integer(data_type) and not kinds.is_uint64(data_type))


def is_text(data_type: pa.DataType) -> bool:
    """Return whether a type is a string of any layout."""
    return bool(
        kinds.is_string(data_type)
        or kinds.is_large_string(data_type)
        or kinds.is_string_view(data_type)
    )


def _compared(field: pa.Field) -> pa.DataType:
    data_type = field.type
    return data_type.value_type if kinds.is_dictionary(data_type) else data_type


def _has_only(node: exp.Expression, *names: str) -> bool:
    return all(name in names for name, value in node.args.items() if value not in (None, [], False))


def _quoted(field: pa.Field) -> str:
    name: str = field.name.replace("`", "``")
    return f"`{name}`"


def _read_number(text: str) -> int | Decimal | float | None:
    if text.isdigit():
        return int(text)
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def _number_of(value: Decimal | float, data_type: pa.DataType) -> str | None:
    if is_whole(data_type):
        return None if isinstance(value, float) else _digits(value)
    if kinds.is_decimal128(data_type):
        if isinstance(value, float):
            return None
        exact = Decimal(value)
        scale = max(0, -int(exact.as_tuple().exponent))
        digits = max(len(exact.as_tuple().digits) - scale, 1)
        whole = max(data_type.precision - data_type.scale, digits)
        fits = whole + max(data_type.scale, scale) <= _DECIMAL_DIGITS_MAX
        return _digits(exact) if fits else None
    is_single = kinds.is_float32(data_type)
    if not is_single and not kinds.is_float64(data_type):
        return None
    if isinstance(value, int) and abs(value) > _EXACT_FLOAT_INTEGERS:
        return None
    number = float(value)
    if not np.isfinite(number) or (is_single and float(np.float32(number)) != number):
        return None
    return repr(number) if "e" in repr(number) else f"{number!r}e0"


def _digits(value: int | Decimal) -> str:
    return str(value) if isinstance(value, int) else f"{value:f}"


def _text_for(value: str, data_type: pa.DataType) -> str | None:
    """Return a string literal cast to a date; None for types that Spark casts otherwise."""
    if is_text(data_type):
        return _text_of(value)
    if kinds.is_date32(data_type) and _DATE.fullmatch(value):
        day = _day(value)
        return None if day is None else f"DATE '{day.isoformat()}'"
    if kinds.is_timestamp(data_type) and data_type.tz is None and _TIME.fullmatch(value):
        found = _instant(value)
        return None if found is None else _time_of(found, data_type)
    return None


def _text_of(value: str) -> str | None:
    if not _PLAIN_TEXT.fullmatch(value):
        return None
    return f"'{value}'"


def _time_of(value: datetime, data_type: pa.DataType) -> str | None:
    if not kinds.is_timestamp(data_type) or data_type.unit == "ns":
        return None
    if (value.tzinfo is None) != (data_type.tz is None):
        return None
    return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"


def _is_small(value: Any) -> bool:
    """Return whether a sum of such constants is exact in every type that Spark may use."""
    is_exact = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return is_exact and abs(value) < _SMALL and len(str(value)) <= _SMALL_DIGITS


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _fits(text: str, data_type: exp.DataType) -> bool:
    """Return whether a decimal fits the precision of its target type."""
    sizes = [int(each.name) for each in data_type.expressions]
    if len(sizes) != 2:
        return False
    whole, _, rest = text.partition(".")
    return len(whole.lstrip("0")) <= sizes[0] - sizes[1] and len(rest) <= sizes[1]


def _add_months(start: date, months: int) -> date:
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return date(year, month + 1, day)

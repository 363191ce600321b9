"""Statistics of columns for the viewer: nulls, bounds, histograms and frequent values.

    price   float    nulls 0 %    0.01 .. 99.5    histogram of 20 bins
    city    string   nulls 2 %    8 values        Rome 310, Oslo 280, ...

Nulls and bounds of large tables are those of zone statistics or an index, if possible. Histograms
and frequent values require values, so large tables are sampled: one random row of each of 10,000
equal ranges. An index that covers all rows counts frequent values exactly.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.dataset import LanceDataset
from lancelet.errors import LanceletError
from lancelet.expr.expression import quote_name
from lancelet.expr.python_values import scalar_value
from lancelet.upkeep.column_statistics import stored_statistics

SAMPLE_ROWS: Final = 10_000
SAMPLE_ROWS_MIN: Final = 100
SAMPLE_BYTES: Final = 1 << 26
COLUMNS_MAX: Final = 200
FRAGMENTS_MAX: Final = 256
"""Zone statistics of more fragments take too many requests."""

_BINS: Final = 20
_TOP: Final = 8
_TEXT_MAX: Final = 60
_FILTER_MAX: Final = 1_000
"""A filter is part of a URL, so it contains no longer text."""
_FOUR_DIGIT_YEAR: Final = re.compile(r"[0-9]{4}-")
_COUNTING: Final = frozenset({"BITMAP", "BTREE"})


def column_statistics(table: LanceDataset, condition: str | None = None) -> dict[str, Any]:
    """Return statistics of the plain columns of a version, from a sample of its rows.

    Of more rows that match a filter, the first ones are the sample.
    """
    fields = [field for field in table.schema if is_summarized(field.type)]
    names = [field.name for field in fields][:COLUMNS_MAX]
    total = table.count_rows(condition)
    if not names or not total:
        return {"columns": [], "sampled": 0, "rows": total}
    size = _sample_rows(table, names)
    is_whole = total <= size
    if condition is not None or is_whole:
        sample = table.to_table(columns=names, filter=condition, limit=size)
    else:
        # Random distances, because columns can be periodic.
        steps = np.arange(size) + np.random.default_rng(0).random(size)
        rows = (steps * (total / size)).astype(np.int64)
        sample = table.take(rows.tolist(), columns=names)
    found = [_of_values(name, sample[name].combine_chunks()) for name in names]
    if condition is None and not is_whole:
        counting = {
            index.field_names[0]
            for index in table.describe_indices()
            if index.index_type.upper() in _COUNTING and index.num_rows_indexed == total
        }
        for each in found:
            _use_stored(table, each, is_counted=each["name"] in counting)
    is_cut = len(fields) > COLUMNS_MAX
    return {"columns": found, "sampled": sample.num_rows, "rows": total, "cut": is_cut}


def is_summarized(data_type: pa.DataType) -> bool:
    """Return whether values of a type can be counted and compared."""
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    is_plain = pa.types.is_primitive(data_type) or pa.types.is_decimal(data_type)
    return bool(is_text or is_plain or pa.types.is_dictionary(data_type))


def _sample_rows(table: LanceDataset, names: list[str]) -> int:
    """Return the number of rows to read, fewer if their values are large."""
    snapshot = table.snapshot
    rows = max(1, int(snapshot.fragments.physical_rows.sum()))
    size = snapshot.data_bytes
    if size > SAMPLE_BYTES and len(snapshot.fragments) <= FRAGMENTS_MAX:
        ids = {int(snapshot.schema.field_by_path(name).id) for name in names}
        fields = table.stats.data_stats().fields
        size = sum(field.bytes_on_disk for field in fields if field.id in ids)
    return min(SAMPLE_ROWS, max(SAMPLE_ROWS_MIN, SAMPLE_BYTES * rows // max(1, size)))


def _use_stored(table: LanceDataset, found: dict[str, Any], *, is_counted: bool) -> None:
    """Replace nulls, bounds and counts of a sample by those that are stored for all rows."""
    snapshot, name = table.snapshot, found["name"]
    if len(snapshot.fragments) <= FRAGMENTS_MAX:
        with contextlib.suppress(LanceletError):  # a damaged index leaves the sample
            stored = stored_statistics(snapshot, name)
            if stored is not None:
                source, exact = stored
                found |= {"source": source.value, "nulls": exact.null_count / exact.num_rows}
                if exact.minimum is not None:
                    found |= {"min": _short(exact.minimum), "max": _short(exact.maximum)}
    if "top" in found and is_counted:
        for each in found["top"]:
            if each["filter"] is not None:
                each["count"] = table.count_rows(each["filter"])
        found["top"].sort(key=lambda each: -each["count"])
        found["counted_by"] = "an index"


def _of_values(name: str, values: pa.Array) -> dict[str, Any]:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    present = values.drop_null()
    found: dict[str, Any] = {
        "name": name,
        "type": str(values.type),
        "nulls": values.null_count / max(1, len(values)),
        "distinct": pc.count_distinct(present).as_py(),
    }
    if values.null_count:
        found["null_filter"] = f"{quote_name(name)} IS NULL"
    if not len(present):
        return found
    if not pa.types.is_boolean(values.type):
        with contextlib.suppress(pa.ArrowNotImplementedError):  # a type without an order in Arrow
            bounds = pc.min_max(present)
            found |= {name: _short(scalar_value(bounds[name])) for name in ("min", "max")}
    if found["distinct"] > _TOP and _is_measured(values.type):
        histogram = _histogram(name, present)
        return found if histogram is None else found | {"histogram": histogram}
    if found["distinct"] == len(present) > _TOP:
        return found  # no value is frequent
    counted = pc.value_counts(present)
    order = np.argsort(-counted.field("counts").to_numpy(), kind="stable")[:_TOP]
    top = counted.take(pa.array(order))
    found["top"] = [
        {
            "label": _short(scalar_value(value)),
            "count": count,
            "filter": _condition(name, scalar_value(value), values.type),
        }
        for value, count in zip(top.field("values"), top.field("counts").to_pylist(), strict=True)
    ]
    return found


def _is_measured(data_type: pa.DataType) -> bool:
    is_number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type)
    is_moment = pa.types.is_date(data_type) or pa.types.is_timestamp(data_type)
    return bool(is_number or is_moment)


def _histogram(name: str, present: pa.Array) -> list[dict[str, Any]] | None:
    """Return the bins of numbers, dates or timestamps with their filters; None if they overlap."""
    data_type = present.type
    is_number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type)
    if not is_number:
        present = present.cast(pa.int32() if pa.types.is_date32(data_type) else pa.int64())
    numbers = present.to_numpy(zero_copy_only=False).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    with np.errstate(over="ignore"):
        span = numbers.max() - numbers.min()
    if not np.spacing(np.abs(numbers).max()) * _BINS < span < np.inf:
        return None  # the bins would have no width
    counts, edges = np.histogram(numbers, bins=_BINS)
    show, literal = _edge_texts(data_type, edges)
    quoted = quote_name(name)
    bins = []
    for bin_number, count in enumerate(counts.tolist()):
        low, high = bin_number, bin_number + 1
        until = "<=" if high == _BINS else "<"
        first, last = literal(low), literal(high)
        bins.append(
            {
                "label": f"{show(low)} to {show(high)}",
                "count": count,
                "filter": None
                if first is None or last is None
                else f"{quoted} >= {first} AND {quoted} {until} {last}",
            }
        )
    return bins


def _edge_texts(
    data_type: pa.DataType, edges: np.ndarray[Any, np.dtype[np.float64]]
) -> tuple[Callable[[int], str], Callable[[int], str | None]]:
    """Return the label and the SQL literal of an edge by its number."""
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return lambda at: f"{edges[at]:.4g}", lambda at: repr(float(edges[at]))
    stored = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    moments = pa.array(np.ceil(edges).astype(np.int64)).cast(stored).cast(data_type)
    texts = [
        text if _FOUR_DIGIT_YEAR.match(text) else str(scalar_value(moment))
        for moment, text in zip(moments, moments.cast(pa.string()).to_pylist(), strict=True)
    ]
    kind = "DATE" if pa.types.is_date(data_type) else "TIMESTAMP"
    has_literals = getattr(data_type, "tz", None) is None

    def literal(at: int) -> str | None:
        is_literal = has_literals and _FOUR_DIGIT_YEAR.match(texts[at])
        return f"{kind} '{texts[at]}'" if is_literal else None

    return lambda at: texts[at], literal


def _condition(name: str, value: object, data_type: pa.DataType) -> str | None:
    """Return the SQL filter of a value, or None for long texts and types without a literal.

    >>> _condition("name", "it's", pa.string()), _condition("a`b", 0.1, pa.float64())
    ("name = 'it''s'", '`a``b` = 0.1')
    """
    quoted = quote_name(name)
    match value:
        case str() if len(value) > _FILTER_MAX or pa.types.is_temporal(data_type):
            return None
        case bool():
            return quoted if value else f"NOT {quoted}"
        case str():
            text = value.replace("'", "''")
            return f"{quoted} = '{text}'"
        case int():
            return f"{quoted} = {value}"
        case float() if math.isfinite(value):
            return f"{quoted} = {value!r}"
        case date() if not isinstance(value, datetime):
            return f"{quoted} = DATE '{value}'"
    return None


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"

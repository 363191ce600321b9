"""Statistics of columns for the viewer: nulls, bounds, histograms and frequent values.

    price   float    nulls 0 %    0.01 .. 99.5    histogram of 20 bins
    city    string   nulls 2 %    8 values        Rome 310, Oslo 280, ...

Large tables are sampled: rows are evenly spaced, and the response states their number.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.dataset import LanceDataset

SAMPLE_ROWS: Final = 10_000
_BINS: Final = 20
_TOP: Final = 8
_TEXT_MAX: Final = 60


def column_statistics(table: LanceDataset) -> dict[str, Any]:
    """Return statistics of the plain columns of a version, from a sample of its rows."""
    names = [field.name for field in table.schema if is_summarized(field.type)]
    total = table.count_rows()
    if not names or not total:
        return {"columns": [], "sampled": 0, "rows": total}
    if total <= SAMPLE_ROWS:
        sample = table.to_table(columns=names)
    else:
        rows = np.linspace(0, total - 1, SAMPLE_ROWS).astype(np.int64)
        sample = table.take(rows.tolist(), columns=names)
    found = [_statistics(name, sample[name].combine_chunks()) for name in names]
    return {"columns": found, "sampled": sample.num_rows, "rows": total}


def is_summarized(data_type: pa.DataType) -> bool:
    """Return whether values of a type can be counted and compared."""
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    is_plain = pa.types.is_primitive(data_type) or pa.types.is_decimal(data_type)
    return bool(is_text or is_plain or pa.types.is_dictionary(data_type))


def _statistics(name: str, values: pa.Array) -> dict[str, Any]:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    present = values.drop_null()
    found: dict[str, Any] = {
        "name": name,
        "nulls": values.null_count / max(1, len(values)),
        "distinct": pc.count_distinct(present).as_py(),
    }
    if not len(present):
        return found
    if not pa.types.is_boolean(values.type):
        with contextlib.suppress(pa.ArrowNotImplementedError):  # a type without an order in Arrow
            bounds = pc.min_max(present).as_py()
            found |= {"min": _short(bounds["min"]), "max": _short(bounds["max"])}
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if is_number and found["distinct"] > _TOP:
        numbers = present.to_numpy(zero_copy_only=False).astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if len(numbers):
            with np.errstate(over="ignore"):
                span = numbers.max() - numbers.min()
            steps = np.spacing(np.abs(numbers).max()) * _BINS
            if not steps < span < np.inf:
                return found  # the bins would have no width
            counts, edges = np.histogram(numbers, bins=_BINS)
            labels = [f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(edges)]
            found["histogram"] = [
                {"label": label, "count": count}
                for label, count in zip(labels, counts.tolist(), strict=True)
            ]
        return found
    if found["distinct"] == len(present) > _TOP:
        return found  # no value is frequent
    counted = pc.value_counts(present)
    order = np.argsort(-counted.field("counts").to_numpy(), kind="stable")[:_TOP]
    top = counted.take(pa.array(order))
    found["top"] = [
        {"label": _short(value), "count": count, "filter": _condition(name, value)}
        for value, count in zip(
            top.field("values").to_pylist(), top.field("counts").to_pylist(), strict=True
        )
    ]
    return found


def _condition(name: str, value: object) -> str | None:
    """Return the SQL filter of a value, or None for types without a simple literal.

    >>> _condition("name", "it's"), _condition("x", 0.1), _condition("x", None)
    ("`name` = 'it''s'", '`x` = 0.1', None)
    """
    match value:
        case bool():
            return f"`{name}`" if value else f"NOT `{name}`"
        case str():
            quoted = value.replace("'", "''")
            return f"`{name}` = '{quoted}'"
        case int():
            return f"`{name}` = {value}"
        case float() if math.isfinite(value):
            return f"`{name}` = {value!r}"
    return None


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"

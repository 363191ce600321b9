"""The columns that the benchmarks write and read, made from a fixed seed."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa

SEED = 20_240_601
_TEXT = """
carefully quick slyly final regular bold pending deposits accounts packages requests theodolites
instructions foxes dependencies platelets above the among after furious even special express ironic
blithely according to sleep wake nag haggle boost detect cajole integrate use
"""
_WORDS = _TEXT.split()


def _random() -> np.random.Generator:
    return np.random.default_rng(SEED)


def int32_13_bits(rows: int) -> pa.Array:
    return pa.array(_random().integers(0, 1 << 13, rows, dtype=np.int32))


def int64_21_bits(rows: int) -> pa.Array:
    return pa.array(_random().integers(0, 1 << 21, rows, dtype=np.int64))


def comments(rows: int) -> pa.Array:
    """Short comment text: a few words of a small vocabulary."""
    random = _random()
    counts = random.integers(2, 9, rows)
    picked = np.asarray(_WORDS)[random.integers(0, len(_WORDS), counts.sum())]
    ends = np.cumsum(counts)
    starts = ends - counts
    return pa.array([" ".join(picked[a:b]) for a, b in zip(starts, ends, strict=True)])


def urls(rows: int) -> pa.Array:
    random = _random()
    hosts = random.integers(0, 2_000, rows)
    items = random.integers(0, 1 << 31, rows)
    pages = np.asarray(["article", "product", "user/profile", "search", "images/raw"])[
        random.integers(0, 5, rows)
    ]
    return pa.array(
        [
            f"https://www.site-{h:04d}.example.com/{p}/{i:010d}?ref=home"
            for h, p, i in zip(hosts, pages, items, strict=True)
        ]
    )


def prices(rows: int) -> pa.Array:
    cents = _random().integers(90_000, 10_500_000, rows)
    return pa.array([decimal.Decimal(int(c)).scaleb(-2) for c in cents], pa.decimal128(15, 2))


def flags(rows: int) -> pa.Array:
    return pa.array(
        np.asarray(["A", "N", "R"])[_random().integers(0, 3, rows)].astype(object), pa.string()
    )


def doubles_two_decimals(rows: int) -> pa.Array:
    return pa.array(np.round(_random().integers(0, 10_000_00, rows) / 100, 2))


def floats_one_decimal(rows: int) -> pa.Array:
    return pa.array((_random().integers(0, 50, rows) / 10).astype(np.float32))


def increasing_microseconds(rows: int) -> pa.Array:
    steps = _random().integers(0, 2_000_000, rows)
    return pa.array(1_700_000_000_000_000 + np.cumsum(steps), pa.timestamp("us"))


def row_numbers(rows: int) -> pa.Array:
    return pa.array(np.arange(rows, dtype=np.int64))


def vectors(rows: int, dimension: int = 768) -> pa.Array:
    values = _random().standard_normal(rows * dimension, dtype=np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), dimension)


def nested(rows: int) -> pa.Array:
    """Lists of structs, with nulls and empties at every level."""
    random = _random()
    lengths = random.integers(0, 6, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    items = int(offsets[-1])
    struct = pa.StructArray.from_arrays(
        [
            pa.array(
                random.integers(0, 1000, items, dtype=np.int32), mask=random.random(items) < 0.1
            ),
            pa.array(
                np.asarray(_WORDS)[random.integers(0, len(_WORDS), items)].astype(object),
                pa.string(),
            ),
        ],
        ["number", "word"],
        mask=pa.array(random.random(items) < 0.05),
    )
    return pa.ListArray.from_arrays(
        pa.array(offsets), struct, mask=pa.array(random.random(rows) < 0.05)
    )


SIZE_COLUMNS = {
    "decimal(15,2) price": prices,
    "one-letter string flag": flags,
    "short comment text": comments,
    "f64 with two decimals": doubles_two_decimals,
    "f32 with one decimal": floats_one_decimal,
    "increasing microseconds": increasing_microseconds,
    "row number": row_numbers,
    "URL": urls,
}
"""Columns whose size on disk is compared with Parquet's, by the name that the table prints."""

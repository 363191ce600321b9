"""The demo's data: orders by a fixed seed, made where they are needed, and scanned digits.

A row depends on the seed and on its id alone, so that any task can make any rows of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.datasets import load_digits

SEED = 20260101
ORDERS = (
    "id long, at timestamp, customer int, price double, amount decimal(15, 2), "
    "status string, comment string"
)
WORDS = (
    *("quick", "brown", "foxes", "jump", "over", "lazy", "dogs", "and", "find", "what"),
    *("nobody", "looks", "for", "under", "every", "third", "stone", "by", "the", "river"),
)
COMMENT_WORDS = 5
EMBEDDING = 16
DIGIT_SIDE = 8
CUSTOMERS = 50_000

_DECIMAL = pa.decimal128(15, 2)
_START = np.datetime64("2026-01-01", "us")


def orders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn batches of ids into orders."""
    for batch in batches:
        yield orders_of(batch.column(0).to_numpy(), "new")


def late_orders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn batches of ids into orders that came late, or came again with another price."""
    for batch in batches:
        yield orders_of(batch.column(0).to_numpy(), "late")


def orders_of(ids: np.ndarray, first_status: str) -> pa.RecordBatch:
    """Return the orders with some ids."""
    cents = 100 + _random(ids, 1) % 1_000_000
    words = pa.array(WORDS)
    chosen = [words.take(pa.array(_random(ids, 10 + i) % len(WORDS))) for i in range(COMMENT_WORDS)]
    statuses = pa.array([first_status, "paid", "paid", "sent", "sent", "sent", "sent", "cancelled"])
    wide = np.stack([cents, np.zeros_like(cents)], axis=1)
    columns = {
        "id": pa.array(ids),
        "at": pa.array(_START + ids * 2_500_000 + _random(ids, 2) % 2_500_000).cast(
            pa.timestamp("us", "UTC")
        ),
        "customer": pa.array(_random(ids, 3) % CUSTOMERS).cast(pa.int32()),
        "price": pa.array(cents / 100),
        "amount": pa.Array.from_buffers(_DECIMAL, len(ids), [None, pa.py_buffer(wide)]),
        "status": statuses.take(pa.array(_random(ids, 4) % len(statuses))),
        "comment": pc.binary_join_element_wise(*chosen, " "),
    }
    return pa.RecordBatch.from_pydict(columns)


def _random(ids: np.ndarray, stream: int) -> np.ndarray:
    """Return numbers that look random, of 62 bits, for each id: the mixer of SplitMix64."""
    step = np.uint64(0x9E3779B97F4A7C15)
    mixed = (ids.astype(np.uint64) + np.uint64(SEED + stream * 1_000_003)) * step
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(2)).astype(np.int64)


def word_vectors() -> np.ndarray:
    """Return a vector for each word: the model that workers load once."""
    return np.random.default_rng(SEED).standard_normal((len(WORDS), EMBEDDING)).astype(np.float32)


def embed_comments(batch: pa.RecordBatch, model: np.ndarray) -> pa.RecordBatch:
    """Return the sum of the vectors of a comment's words, for each row."""
    comments = batch.column("comment")
    counts = np.stack(
        [pc.count_substring(comments, word).to_numpy(zero_copy_only=False) for word in WORDS], 1
    )
    return vectors("embedding", counts.astype(np.float32) @ model)


def digits() -> pa.Table:
    """Return the scanned digits of scikit-learn: pictures, their pixels, and what they show."""
    found = load_digits()
    pixels = found.images.astype(np.uint8)
    header = f"P5 {DIGIT_SIDE} {DIGIT_SIDE} 16\n".encode()
    return pa.table(
        {
            "id": pa.array(np.arange(len(pixels))),
            "label": pa.array(found.target.astype(np.int32)),
            "picture": pa.array([header + each.tobytes() for each in pixels], pa.binary()),
            "pixels": pa.array(list(found.data.astype(np.float32)), pa.list_(pa.float32())),
        }
    )


def digit_axes() -> np.ndarray:
    """Return the directions in which the digits differ most: the model that workers load once."""
    pixels = load_digits().data.astype(np.float32)
    _, _, axes = np.linalg.svd(pixels - pixels.mean(axis=0), full_matrices=False)
    return axes[:EMBEDDING].T


def embed_digits(batch: pa.RecordBatch, model: np.ndarray) -> pa.RecordBatch:
    """Return where each picture lies along those directions."""
    pixels = batch.column("pixels").flatten().to_numpy().reshape(-1, DIGIT_SIDE * DIGIT_SIDE)
    return vectors("embedding", pixels @ model)


def vectors(name: str, values: np.ndarray) -> pa.RecordBatch:
    """Return a batch with one column of vectors."""
    flat = pa.array(np.ascontiguousarray(values, np.float32).ravel())
    return pa.RecordBatch.from_arrays(
        [pa.FixedSizeListArray.from_arrays(flat, type=EMBEDDINGS.field(0).type)], [name]
    )


EMBEDDINGS = pa.schema([pa.field("embedding", pa.list_(pa.float32(), EMBEDDING))])

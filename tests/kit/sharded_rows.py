"""Rows for a table with a shard: a key, a text and a vector, each of which can have an index.

id   s          x
7    tree w7    [7, 1, 0, 0]
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

KEY: Final = {"lance-schema:unenforced-primary-key": "true"}
"""The metadata of the key column."""
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("s", pa.string()),
        pa.field("x", pa.list_(pa.float32(), 4)),
    ]
)
"""The columns: `id`, `s` and `x`."""
SHARD: Final = uuid.UUID(int=7)
"""The id of the shard."""


def sharded_rows(ids: Iterable[int], far: float = 0.0) -> pa.Table:
    """Return rows with these ids; `far` shifts their vectors."""
    ids = list(ids)
    vectors = [[i + far, i % 3, 0, 0] for i in ids]
    return pa.table({"id": ids, "s": [f"tree w{i}" for i in ids], "x": vectors}, SCHEMA)

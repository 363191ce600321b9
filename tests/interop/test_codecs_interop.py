"""Goal: whatever codec is chosen, by either side, the other side reads the same values.

Method: columns that make writers choose different codecs, under metadata that force others; each
is written by us and read by the reference and by ourselves, then the other way round. That the
columns make us choose every codec there is, is a test of its own.
"""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader as TheirReader
from lance.file import LanceFileWriter as TheirWriter

from lancelet.file import LanceFileReader, LanceFileWriter

pytestmark = pytest.mark.interop

ROWS = 6000
RNG = np.random.default_rng(3)
WORDS = np.array(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"])


def with_nulls(array: pa.Array) -> pa.Array:
    return pa.array(
        [None if i % 7 == 3 else value for i, value in enumerate(array.to_pylist())], array.type
    )


INTEGERS = RNG.integers(0, 1000, ROWS)
FLOATS = np.round(RNG.gamma(2, 50, ROWS), 2)
SENTENCES = [" ".join(RNG.choice(WORDS, 6)) + f" {i}" for i in range(ROWS)]
COLUMNS = {
    "random": pa.array(RNG.integers(-(2**62), 2**62, ROWS)),
    "small": pa.array(INTEGERS.astype(np.int32)),
    "bytes": pa.array((INTEGERS % 7).astype(np.uint8)),
    "runs": pa.array(np.repeat(INTEGERS[: ROWS // 60], 60)),
    "rising": pa.array(10**15 + np.cumsum(INTEGERS), pa.timestamp("us")),
    "row": pa.array(np.arange(ROWS)),
    "floats": pa.array(FLOATS),
    "floats32": pa.array(RNG.normal(size=ROWS).astype(np.float32)),
    "halves": pa.array(FLOATS.astype(np.float16)),
    "booleans": pa.array(INTEGERS % 3 == 0),
    "price": pa.array(INTEGERS).cast(pa.decimal128(19, 0)),
    "wide": pa.array(INTEGERS).cast(pa.decimal256(40, 0)),
    "digest": pa.array(
        [bytes(RNG.integers(0, 256, 20, np.uint8)) for _ in range(ROWS)], pa.binary(20)
    ),
    "few": pa.array(RNG.choice(WORDS, ROWS)),
    "sentences": pa.array(SENTENCES),
    "large": pa.array(SENTENCES, pa.large_string()),
    "binary": pa.array([RNG.bytes(i % 12) for i in range(ROWS)]),
    "long": pa.array([text * 12 for text in SENTENCES[:500]]),
    "huge": pa.array([text * 900 for text in SENTENCES[:20]]),
    "vectors": pa.FixedSizeListArray.from_arrays(pa.array(RNG.normal(size=ROWS * 4)), 4),
    "embeddings": pa.FixedSizeListArray.from_arrays(
        pa.array(RNG.normal(size=300 * 128).astype(np.float32)), 128
    ),
    "null_items": pa.array(
        [[None if (i + j) % 5 == 0 else i for j in range(3)] for i in range(ROWS)],
        pa.list_(pa.int16(), 3),
    ),
}
KEYS = pa.array(RNG.integers(0, 1 << 40, 3000)[RNG.integers(0, 3000, 50_000)])
"""A dictionary pays, and so does packing its items."""
METADATA = {
    "nothing": {},
    "none": {"lance-encoding:compression": "none"},
    "lz4": {"lance-encoding:compression": "lz4"},
    "zstd": {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "5"},
    "fsst": {"lance-encoding:compression": "fsst"},
    "split": {"lance-encoding:compression": "zstd", "lance-encoding:bss": "on"},
    "runs": {"lance-encoding:rle-threshold": "1.0", "lance-encoding:bss": "off"},
}


def write_ours(path: Path, data: pa.Table, version: str) -> None:
    with LanceFileWriter(str(path), data.schema, version=version) as writer:
        writer.write_batch(data)


def write_theirs(path: Path, data: pa.Table, version: str) -> None:
    with TheirWriter(str(path), data.schema, version=version) as writer:
        writer.write_batch(data)


def check(path: Path, data: pa.Table) -> None:
    rows = sorted(RNG.choice(len(data), min(len(data), 40), replace=False).tolist())
    for reader in (LanceFileReader(str(path)), TheirReader(str(path))):
        found = reader.read_all().to_table()
        found.validate(full=True)
        assert found.equals(data)
        assert reader.take_rows(rows).to_table().equals(data.take(rows))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("wish", METADATA)
@pytest.mark.parametrize("has_nulls", [False, True])
def test_both_sides_read_what_either_writes(version, wish, has_nulls, tmp_path) -> None:
    for name, array in COLUMNS.items():
        values = with_nulls(array) if has_nulls else array
        field = pa.field(name, values.type, metadata=METADATA[wish])
        data = pa.table([values], schema=pa.schema([field]))
        for write in (write_ours, write_theirs):
            path = tmp_path / f"{write.__name__}-{name}.lance"
            write(path, data, version)
            check(path, data)


def test_the_columns_make_us_choose_every_codec(tmp_path) -> None:
    chosen: set[str] = set()
    for wish in METADATA.values():
        for name, array in {**COLUMNS, "keys": KEYS}.items():
            field = pa.field(name, array.type, metadata=wish)
            path = tmp_path / f"{name}.lance"
            write_ours(path, pa.table([array], schema=pa.schema([field])), "2.2")
            (column,) = LanceFileReader(str(path)).metadata().columns
            for page in column.pages:
                chosen |= set(re.findall(r"\b([A-Z]\w+)\($", page.encoding, re.MULTILINE))
    assert chosen >= {
        "Flat",
        "Variable",
        "InlineBitpacking",
        "OutOfLineBitpacking",
        "Fsst",
        "Rle",
        "ByteStreamSplit",
        "General",
        "FixedSizeList",
    }

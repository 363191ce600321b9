"""A flipped bit in a data file never yields a wrong value.

Files with columns of every layout are flipped one bit at a time, at random positions and at every
byte of the tail, where one bit changes what all others mean. Reading all of it, and some rows of
it, must raise or return what was written, from memory and from a mapped file.
"""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError, NotFoundError, UnsupportedError
from lancelet.file import LanceFileWriter
from lancelet.file.open import open_data_file
from lancelet.io.cache import LruCache
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore

ROWS = 5_000
VERSIONS = ["2.0", "2.1", "2.2", "2.3"]


def table_of_every_layout(seed):
    random = np.random.default_rng(seed)
    words = np.array(["alpha", "beta", "gamma", "delta"], dtype=object)
    lengths = random.integers(0, 4, ROWS)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = random.random(ROWS) < 0.1
    return pa.table(
        {
            "packed": pa.array(random.integers(0, 1000, ROWS), pa.int64(), mask=mask),
            "random": pa.array(random.random(ROWS)),
            "constant": pa.array(np.full(ROWS, 7, np.int32)),
            "nulls": pa.nulls(ROWS, pa.string()),
            "words": pa.array(words[random.integers(0, 4, ROWS)]),
            "texts": pa.array([f"row {i} of {random.integers(1 << 40)}" for i in range(ROWS)]),
            "long": pa.array([bytes(random.bytes(300)) for _ in range(ROWS // 10)] * 10),
            "vectors": pa.FixedSizeListArray.from_arrays(
                pa.array(random.random(ROWS * 80, dtype=np.float32)), 80
            ),
            "lists": pa.ListArray.from_arrays(
                pa.array(offsets), pa.array(random.integers(0, 50, int(offsets[-1])), pa.int32())
            ),
            "flags": pa.array(random.random(ROWS) < 0.5),
            "runs": pa.array(np.repeat(random.integers(0, 9, ROWS // 50), 50), pa.int16()),
        }
    )


def written(table, version):
    path = "memory://flips/file.lance"
    with LanceFileWriter(path, table.schema, version=version) as writer:
        writer.write_batch(table)
    return MemoryStore("flips").read("file.lance")


def read(data, store):
    """Return all of a file and some rows of it; nothing is cached."""
    store.put("file.lance", data)
    reader = open_data_file(store, "file.lance", cache=LruCache(1 << 20))
    try:
        fields = reader.schema.fields
        everything = reader.read(fields, RowRange(0, reader.num_rows))
        some = reader.read(fields, RowIndices(np.arange(0, reader.num_rows, 97)))
        return reader.schema.to_arrow(), everything, some
    finally:
        reader.close()


def check_flips(data, bits, store):
    """Return how many flips raised and how many changed nothing; none may do otherwise."""
    schema, everything, some = read(data, store)
    raised = harmless = 0
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = read(bytes(flipped), store)
        except (CorruptDataError, UnsupportedError, NotFoundError):
            raised += 1
            continue
        assert found[0].equals(schema, check_metadata=True), f"bit {bit} changed the schema"
        for name, ours, theirs in zip(schema.names, everything, found[1], strict=True):
            assert ours.equals(theirs), f"bit {bit} changed {name} in silence"
        for name, ours, theirs in zip(schema.names, some, found[2], strict=True):
            assert ours.equals(theirs), f"bit {bit} changed {name} in silence"
        harmless += 1
    return raised, harmless


@pytest.fixture(params=["memory", "mapped"])
def store(request, tmp_path):
    return MemoryStore("flipped") if request.param == "memory" else LocalStore(str(tmp_path))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "flips", [100, pytest.param(1_000, marks=pytest.mark.slow)], ids="{}-flips".format
)
def test_no_flipped_bit_is_a_wrong_value(flips, version, store):
    data = written(table_of_every_layout(seed=flips), version)
    bits = np.random.default_rng(flips).integers(0, len(data) * 8, flips).tolist()
    raised, harmless = check_flips(data, bits, store)
    assert raised + harmless == flips
    assert raised > 0.95 * flips


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "stride", [97, pytest.param(7, marks=pytest.mark.slow)], ids="every-{}-bits".format
)
def test_no_flipped_bit_of_the_tail_is_a_wrong_value(stride, version, store):
    data = written(table_of_every_layout(seed=1).slice(0, 200), version)
    tail = 3_000
    check_flips(data, range((len(data) - tail) * 8, len(data) * 8, stride), store)

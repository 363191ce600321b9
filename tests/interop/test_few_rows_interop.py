"""A few rows of files of the reference, read by the kernel for them, are the rows it wrote."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet import kernels

ROWS = 20_000

pytestmark = pytest.mark.interop


def texts(rng, size):
    letters = np.array(list("abcdefghijklmnop "))
    picked = letters[rng.integers(0, len(letters), (ROWS, size))]
    return ["".join(row) for row in picked]


def table():
    rng = np.random.default_rng(4)
    numbers = rng.integers(0, 900, ROWS)
    mask = numbers % 4 == 0
    words = np.array([f"word {number}" for number in range(900)])
    vectors = pa.array(rng.standard_normal(ROWS * 64).astype(np.float32))
    return pa.table(
        {
            "id": np.arange(ROWS),
            "number": pa.array(numbers, pa.int32(), mask=mask),
            "float": rng.random(ROWS),
            "flag": pa.array(numbers > 400, mask=mask),
            "short": pa.array(texts(rng, 12), mask=mask),
            "long": pa.array(texts(rng, 400)),
            "word": pa.array(words[numbers], mask=mask),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 64),
            "same": np.full(ROWS, 3),
            "code": pa.array(numbers.astype(np.int64) * 7, mask=mask),
            "codes": pa.ListArray.from_arrays(
                np.arange(ROWS + 1, dtype=np.int32),
                pa.StructArray.from_arrays([pa.array(numbers.astype(np.int64))], ["code"]),
            ),
            "nothing": pa.nulls(ROWS, pa.int64()),
        }
    )


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_the_kernel_reads_what_the_reference_wrote(tmp_path, monkeypatch, version):
    written = table()
    lance.write_dataset(written, tmp_path / "t.lance", data_storage_version=version)
    dataset = lancelet.dataset(tmp_path / "t.lance")
    reads = []
    kernel = kernels.take_rows

    def watched(*arguments, **options):
        reads.append(kernel(*arguments, **options))
        return reads[-1]

    monkeypatch.setattr(kernels, "take_rows", watched)
    rng = np.random.default_rng(8)
    for name in written.column_names:
        reads.clear()
        for _ in range(6):
            rows = rng.integers(0, ROWS, int(rng.integers(1, 30)))
            assert dataset.take(rows, columns=[name]).equals(written.select([name]).take(rows))
        assert not kernels.NATIVE or all(
            read is not None and None not in read.outputs for read in reads
        ), name
    rows = rng.integers(0, ROWS, 9)
    for _ in range(4):
        assert dataset.take(rows).equals(written.take(rows))

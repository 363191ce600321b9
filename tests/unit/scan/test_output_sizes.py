"""Outputs of reads of few rows are as large as recent rows, within a limit."""

import random

import numpy as np
import pyarrow as pa

import lancelet
from lancelet import kernels
from lancelet.encodings.pages import planned


def test_long_values_are_read_at_once_and_one_long_value_does_not_size_later_reads(
    tmp_path, monkeypatch
):
    chance = random.Random(1)
    values = [chance.randbytes(5000 if row else 9_000_000) for row in range(300)]
    lancelet.write_dataset(pa.table({"v": values}), tmp_path)
    dataset = lancelet.dataset(tmp_path)
    sizes = []
    take_rows = kernels.take_rows

    def recorded(file, rows, plans, size, **options):
        sizes.append(size)
        return take_rows(file, rows, plans, size, **options)

    monkeypatch.setattr(planned.kernels, "take_rows", recorded)
    rows = np.arange(1, 101)[::-1]
    wanted = [values[row] for row in rows]
    for _ in range(2):
        assert dataset.take(rows)["v"].to_pylist() == wanted
    assert sizes[0] < 100 * 5000 < sizes[1] < 130 * 5000
    assert dataset.take([0])["v"].to_pylist() == [values[0]]
    assert dataset.take(rows)["v"].to_pylist() == wanted
    assert dataset.take(rows)["v"].to_pylist() == wanted
    assert max(sizes) <= 17 << 20
    assert sizes[-1] < 130 * 5000

"""Takes of many rows are read in several tasks, with the rows of one task."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.file import rows as file_rows
from lancelet.file.pool import decoding_inline

ROWS = 60_000


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    counts = np.append(0, np.cumsum(random.integers(0, 4, ROWS))).astype(np.int32)
    return pa.table(
        {
            "number": random.integers(0, 1 << 60, ROWS),
            "price": np.round(random.random(ROWS) * 1000, 2),
            "text": [f"text {value}" for value in random.integers(0, 1 << 40, ROWS)],
            "list": pa.ListArray.from_arrays(counts, random.random(int(counts[-1]))),
        }
    )


@pytest.mark.parametrize("kind", ["ascending", "random", "repeated"])
def test_rows_of_long_takes_are_those_of_one_task(tmp_path, table, monkeypatch, kind):
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    random = np.random.default_rng(1)
    rows = random.choice(ROWS, 9000, replace=kind == "repeated")
    if kind == "ascending":
        rows.sort()
    tasks = []
    read = file_rows.RowReader._read_part
    monkeypatch.setattr(
        file_rows.RowReader, "_read_part", lambda *given: tasks.append(given) or read(*given)
    )
    monkeypatch.setattr(file_rows, "CPU_THREADS", 3)
    monkeypatch.setattr(file_rows, "_LONG_TAKE_BYTES_MIN", 600_000)
    for columns in (["number"], ["price", "list"], table.column_names):
        tasks.clear()
        found = dataset.take(rows, columns=columns)
        assert found.equals(table.select(columns).take(rows))
        assert len(tasks) == (1 if columns == ["number"] else 3)
        with decoding_inline():
            assert dataset.take(rows, columns=columns).equals(found)

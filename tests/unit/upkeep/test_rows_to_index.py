"""An index is built from all live rows, and the read rows are not retained in memory."""

import numpy as np
import pyarrow as pa

import lancelet
from lancelet.upkeep.indexing import rows as indexed_rows
from lancelet.upkeep.indexing.rows import rows_to_index


def test_mapped_files_give_up_memory_as_rows_are_read(tmp_path, monkeypatch):
    count, forgotten = 400_000, []
    path = str(tmp_path / "t.lance")
    dataset = lancelet.write_dataset(pa.table({"a": np.arange(count)}), path)
    dataset.delete("a % 10 = 3")
    monkeypatch.setattr(indexed_rows, "_MAPPED_BYTES", count)
    monkeypatch.setattr(indexed_rows, "forget_mapped_pages", lambda: forgotten.append(1))
    rows = rows_to_index(dataset.snapshot, ("a",), [0], by_address=True)
    parts = list(rows.parts)
    expected = [each for each in range(count) if each % 10 != 3]
    assert np.concatenate([values.to_numpy() for values, _ in parts]).tolist() == expected
    assert np.concatenate([numbers for _, numbers in parts]).tolist() == expected
    assert 1 < len(forgotten) <= len(parts)

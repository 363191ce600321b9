"""The loaded and cached index parts reported by a scan."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet


@pytest.mark.parametrize(
    ("kind", "text", "parts"), [("BTREE", "a = 42", 1), ("BITMAP", "a IN (3, 4)", 2)]
)
def test_parts_of_an_index_are_read_once_and_found_from_then_on(tmp_path, kind, text, parts):
    path = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"a": range(100)}), path).create_scalar_index("a", kind)
    dataset, told = lancelet.dataset(path), []
    for condition in (text, text, "a = 1000"):
        dataset.scanner(filter=condition, scan_stats_callback=told.append).to_table()
    assert [each.index_cache_misses for each in told] == [parts, 0, 0]
    assert [each.index_cache_hits for each in told[:2]] == [0, parts]
    assert told[0].parts_loaded == parts


def test_partitions_of_vectors_are_read_once_and_found_from_then_on(tmp_path):
    path = str(tmp_path / "t")
    values = np.random.default_rng(2).normal(size=4096).astype(np.float32)
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 8)})
    lancelet.write_dataset(rows, path).create_index("v", "IVF_FLAT", num_partitions=16)
    dataset, told = lancelet.dataset(path), []
    assert dataset.index_cache_hit_rate() == 0
    wanted = {"column": "v", "q": values[:8], "k": 3, "nprobes": 4}
    for probes in (4, 4, 6):
        wanted["nprobes"] = probes
        dataset.scanner(nearest=wanted, scan_stats_callback=told.append).to_table()
    assert [each.parts_loaded for each in told] == [4, 0, 2]
    assert [each.index_cache_hits for each in told] == [0, 4, 4]
    assert dataset.index_cache_hit_rate() == 8 / 14

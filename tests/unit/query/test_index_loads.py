"""What a scan says of the parts of indices that it read, and of those that were in memory."""

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

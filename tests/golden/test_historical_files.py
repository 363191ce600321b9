"""Data files of old pylance releases and their expected rows.

The datasets are described in `historical/README.md`; they never change. The values were recorded
with the release of the reference that `historical_files.json` names, which read files of version
2.0 by themselves and files of version 0.1 as part of their dataset. Two files of
`corrupt_schema` are hidden by others there, so nothing could be recorded of them.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.file.open import open_data_file
from lancelet.io.local import LocalStore

HERE = Path(__file__).parent
STORE = LocalStore(HERE / "historical")
FILES = json.loads((HERE / "historical_files.json").read_text(encoding="utf-8"))["files"]

# Pages of a B-tree, which the reference reads only while it searches: the indexed column is
# 1, 2, 3, 4 in this order.
B_TREE = "v0.20.0/old_btree_bitmap_indices.lance/_indices/e034c4d8-77cd-422c-8855-209eed8deff8"


def plain(values):
    return [value.hex() if isinstance(value, bytes) else value for value in values]


@pytest.mark.parametrize("path", FILES)
def test_a_file_of_an_old_release_reads_as_recorded(path: str) -> None:
    expected = FILES[path]
    reader = open_data_file(STORE, path)
    assert reader.version.value == expected["format"]
    assert sorted(reader.schema.names) == sorted(expected["columns"])
    arrays = reader.read(reader.schema.fields, RowRange(0, reader.num_rows))
    for name, array in zip(reader.schema.names, arrays, strict=True):
        array.validate(full=True)
        values, recorded = plain(array.to_pylist()), expected["columns"][name]
        if "values" in recorded:
            assert values == recorded["values"]
        else:
            assert (len(values), values[0], values[-1]) == (
                recorded["rows"],
                recorded["first"],
                recorded["last"],
            )
            assert hashlib.sha256(json.dumps(values).encode()).hexdigest() == recorded["sha256"]


@pytest.mark.parametrize("path", FILES)
def test_single_rows_of_an_old_file_are_those_of_a_full_read(path: str) -> None:
    reader = open_data_file(STORE, path)
    rows = np.arange(0, reader.num_rows, 3)
    everything = reader.read(reader.schema.fields, RowRange(0, reader.num_rows))
    some = reader.read(reader.schema.fields, RowIndices(rows))
    for full, taken in zip(everything, some, strict=True):
        assert taken.equals(full.take(rows))


def test_an_old_index_of_version_0_1_holds_the_column_in_order() -> None:
    pages = open_data_file(STORE, f"{B_TREE}/page_data.lance")
    values, row_ids = pages.read(pages.schema.fields, RowRange(0, 4))
    assert (values.to_pylist(), row_ids.to_pylist()) == ([1, 2, 3, 4], [0, 1, 2, 3])
    lookup = open_data_file(STORE, f"{B_TREE}/page_lookup.lance")
    columns = lookup.read(lookup.schema.fields, RowRange(0, 1))
    assert [column.to_pylist() for column in columns] == [[1], [4], [0], [0]]


def test_statistics_of_old_files_bound_their_values() -> None:
    covered = 0
    for path in (path for path, file in FILES.items() if file["format"] == "0.1"):
        reader = open_data_file(STORE, path)
        for field in reader.schema.fields:
            zones = reader.zone_statistics(field)
            (values,) = reader.read([field], RowRange(0, reader.num_rows))
            if zones is not None:
                covered += 1
                assert (zones.rows_per_zone, len(zones)) == (reader.num_rows, 1)
                assert zones.minimum.to_pylist() == [min(values.to_pylist())]
                assert zones.maximum.to_pylist() == [max(values.to_pylist())]
    assert covered == 9

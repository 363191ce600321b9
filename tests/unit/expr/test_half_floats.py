"""Indices of half floats, which filters compare as single floats: the same rows as a scan finds.

Bounds lie on values, between two that are next to each other, and beyond all that are finite.
"""

import lance as reference
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.indices import IndexConfig

VALUES = [None, 1.5, np.nan, np.inf, -2, 0.0, -0.0, 1.1, -np.inf, 65504.0, 6e-8]
BOUNDS = ["1.5", "1.1", "0", "-0.0", "1e30", "100000", "6e-8"]
BOUNDS += [f"cast('{text}' as double)" for text in ("nan", "inf", "-inf")]
FILTERS = [f"c {sign} {bound}" for bound in BOUNDS for sign in ("=", "!=", "<", ">=")]
FILTERS += ["c IN (1.5, 7, 0)", "NOT (c IN (1.5, 1.1))", "c BETWEEN -3 AND 1.5", "c IS NULL"]


@pytest.mark.parametrize("writer", [lancelet, reference])
@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_indices_of_half_floats_match_a_scan(tmp_path, kind, writer):
    path = str(tmp_path)
    values = [None if each is None else np.float16(each) for each in VALUES * 30]
    table = pa.table({"id": range(len(values)), "c": pa.array(values, pa.float16())})
    lancelet.write_dataset(table, path, max_rows_per_file=100)
    writer.dataset(path).create_scalar_index("c", kind)
    dataset = lancelet.dataset(path)

    def differing():
        return [
            text
            for text in FILTERS
            if dataset.to_table(filter=text, columns=["id"])
            != dataset.to_table(filter=text, columns=["id"], use_scalar_index=False)
        ]

    assert "ScalarIndexQuery" in dataset.scanner(filter="c = 1.5").explain_plan()
    assert differing() == []
    dataset.insert(table.slice(0, 40))
    dataset.optimize.optimize_indices()
    assert differing() == []


def test_indices_of_labels_that_are_half_floats_find_them(tmp_path):
    labels = pa.array([[np.float16(1.5), None], [np.float16(1.1)]] * 20, pa.list_(pa.float16()))
    dataset = lancelet.write_dataset(pa.table({"l": labels}), str(tmp_path))
    dataset.create_scalar_index("l", "LABEL_LIST", name="labels")
    assert dataset.count_rows("array_has(l, 1.5)") == 20
    plain = dataset.to_table(filter="array_has(l, 1.1)", use_scalar_index=False)
    assert dataset.to_table(filter="array_has(l, 1.1)") == plain


def test_zones_of_half_floats_are_pruned(tmp_path):
    column = pa.array(np.arange(100, dtype=np.float16))
    dataset = lancelet.write_dataset(pa.table({"c": column}), str(tmp_path))
    dataset.create_scalar_index("c", IndexConfig("zonemap", {"rows_per_zone": 10}))
    assert dataset.count_rows("c > 41.5 AND c < 43.5") == 2

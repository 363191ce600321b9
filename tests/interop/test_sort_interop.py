"""Rows are sorted by columns of any type as the reference sorts them."""

import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import ColumnOrdering as ReferenceOrdering

import lancelet
from lancelet.dataset import ColumnOrdering

NAN, INF = float("nan"), float("inf")
POINTS = pa.struct([("x", pa.int64()), ("y", pa.string())])
VALUES = {
    "bool": (pa.bool_(), [None, True, False]),
    "half": (pa.float16(), [None, 1.0, -2.0, NAN, INF]),
    "float": (pa.float64(), [None, 1.0, -2.0, NAN, INF]),
    "decimal": (pa.decimal128(5, 2), [None, Decimal("1.5"), Decimal("-2.5")]),
    "duration": (pa.duration("us"), [None, timedelta(1), timedelta(0)]),
    "words": (pa.dictionary(pa.int8(), pa.string()), [None, "q", "a", "m"]),
    "list": (pa.list_(pa.int64()), [None, [], [1], [1, 2], [0, 5], [1, None]]),
    "lists": (pa.list_(pa.list_(pa.int64())), [None, [[1, 2]], [[1], []], [[1]], []]),
    "vector": (pa.list_(pa.float32(), 2), [[1.0, 2.0], [1.0, 0.0], [0.0, 9.0]]),
    "struct": (POINTS, [None, {"x": 1, "y": "b"}, {"x": 1, "y": "a"}, {"x": None, "y": "c"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", 0)], [("b", -1)], []]),
}


@pytest.mark.parametrize("name", VALUES)
def test_any_type_is_sorted_as_the_reference_sorts(name: str, tmp_path: Path) -> None:
    kind, values = VALUES[name]
    chosen = random.Random(7).choices(values, k=40)
    table = pa.table({"id": range(40), "v": pa.array(chosen, kind)})
    uri = str(tmp_path / "t.lance")
    ours = lancelet.write_dataset(table, uri, max_rows_per_file=15, data_storage_version="2.2")
    theirs = lance.dataset(uri)
    for ascending in (True, False):
        for nulls_first in (True, False):
            how = (ascending, nulls_first)
            found = ours.to_table(order_by=[ColumnOrdering("v", *how), ColumnOrdering("id")])
            keys = [ReferenceOrdering("v", *how), ReferenceOrdering("id")]
            assert found["id"] == theirs.to_table(order_by=keys)["id"], how

"""Goal: DuckDB, Polars and pandas read datasets as they read any of pyarrow's, and push down.

Method: each query runs on the dataset and on the same rows in memory. What was pushed down is seen
in the scanner that was asked for.
"""

import datetime as dt
from decimal import Decimal

import duckdb
import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import lancelet

pytestmark = pytest.mark.interop

ROWS = 1000
FIRST = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - columns without a zone are common
TABLE = pa.table(
    {
        "i": pa.array(range(ROWS), pa.int64()),
        "f": pa.array([n / 4 for n in range(ROWS)], pa.float64()),
        "s": pa.array([None if n % 7 == 0 else f"row {n % 13}" for n in range(ROWS)]),
        "d": pa.array([dt.date(2020, 1, 1) + dt.timedelta(n) for n in range(ROWS)]),
        "t": pa.array([FIRST + dt.timedelta(hours=n) for n in range(ROWS)]),
        "m": pa.array([Decimal(n) / 100 for n in range(ROWS)], pa.decimal128(10, 2)),
        "l": pa.array([[n, n + 1] for n in range(ROWS)], pa.list_(pa.int32())),
        "r": pa.array([{"x": n, "y": str(n)} for n in range(ROWS)]),
        "b": pa.array([n % 3 == 0 for n in range(ROWS)]),
    }
)


class Watched(lancelet.LanceDataset):
    """Remembers what it was asked for."""

    def scanner(self, *arguments, **options):
        self.asked = options
        return super().scanner(*arguments, **options)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    found = str(tmp_path_factory.mktemp("arrow") / "t")
    lancelet.write_dataset(TABLE, found, max_rows_per_file=300)
    return found


@pytest.fixture
def ds(uri):
    return Watched(uri)


QUERIES = [
    "SELECT * FROM data",
    "SELECT i, s FROM data WHERE i > 10 AND i <= 20",
    "SELECT count(*) FROM data WHERE s IS NULL",
    "SELECT sum(f) FROM data WHERE s = 'row 3'",
    "SELECT i FROM data WHERE i IN (1, 5, 999, 2000) ORDER BY i",
    "SELECT i FROM data WHERE d < DATE '2020-02-01' AND b",
    "SELECT max(i) FROM data WHERE t >= TIMESTAMP '2020-01-05 00:00:00'",
    "SELECT i FROM data WHERE m = 1.25",
    "SELECT r.x FROM data WHERE r.x = 7",
    "SELECT s, count(*) AS n FROM data GROUP BY s ORDER BY s",
    "SELECT a.i FROM data a JOIN data b ON a.i = b.i + 1 WHERE a.i < 5 ORDER BY a.i",
    "SELECT l FROM data WHERE i = 3 OR f = 2.5",
]


@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_reads_what_it_would_read_in_memory(ds, query):
    with duckdb.connect() as connection:
        connection.register("data", ds)
        found = connection.sql(query).fetchall()
    with duckdb.connect() as connection:
        connection.register("data", TABLE)
        expected = connection.sql(query).fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_duckdb_pushes_columns_and_filters_down(ds):
    with duckdb.connect() as connection:
        connection.register("data", ds)
        assert connection.sql("SELECT s FROM data WHERE i = 3").fetchall() == [("row 3",)]
    assert set(ds.asked["columns"]) <= {"i", "s"}
    assert isinstance(ds.asked["filter"], pc.Expression)


def test_polars_reads_and_pushes_down(ds):
    lazy = pl.scan_pyarrow_dataset(ds)
    expected = pl.from_arrow(TABLE)
    assert lazy.collect().equals(expected)
    found = lazy.filter((pl.col("i") > 10) & (pl.col("s") == "row 3")).select("i", "d")
    assert found.collect().equals(
        expected.filter((pl.col("i") > 10) & (pl.col("s") == "row 3")).select("i", "d")
    )
    assert ds.asked["filter"] is not None
    assert set(ds.asked["columns"]) <= {"i", "d", "s"}
    assert lazy.head(5).collect().equals(expected.head(5))
    assert (
        lazy.group_by("b").len().sort("b").collect().equals(expected.group_by("b").len().sort("b"))
    )


def test_frames_of_polars_are_written_merged_and_joined_as_by_the_reference(tmp_path):
    made = []
    for package in (lance, lancelet):
        rows = pl.DataFrame({"id": [1, 2], "s": ["a", "b"]})
        table = package.write_dataset(rows, str(tmp_path / package.__name__))
        changed = pl.DataFrame({"id": [2, 3], "s": ["B", "c"]})
        builder = table.merge_insert("id").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(changed)
        table.merge(pl.DataFrame({"id": [1, 2], "t": ["x", "y"]}), "id")
        table.add_columns(pl.DataFrame({"u": ["1", "2", "3"]}))
        table.insert(pl.DataFrame({"id": [4], "s": ["d"], "t": ["z"], "u": ["4"]}))
        made.append(table.to_table())
    assert made[0].equals(made[1])


@pytest.mark.parametrize("key", ["text", "id"])
def test_columns_of_views_are_merged_and_joined(tmp_path, key):
    views = pa.list_(pa.field("item", pa.struct([("x", pa.string_view())])))
    nested = pa.array([[{"x": "a"}], None], views)
    rows = pa.table({"id": [1, 2], "text": pa.array(["a", "b"], pa.string_view()), "n": nested})
    table = lancelet.write_dataset(rows, str(tmp_path / "t"))
    table.merge_insert(key).when_matched_update_all().execute(rows.slice(1))
    table.merge(rows.rename_columns({"n": "joined"}).select([key, "joined"]), key)
    assert table.to_table()["joined"].to_pylist() == [[{"x": "a"}], None]


@pytest.mark.parametrize("index", [None, "k"])
def test_indices_of_pandas_come_back(tmp_path, index):
    rows = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name=index))
    made = [p.write_dataset(rows, str(tmp_path / p.__name__)) for p in (lancelet, lance)]
    assert made[0].schema.equals(made[1].schema, check_metadata=True)
    pd.testing.assert_frame_equal(made[0].to_pandas(), rows)


def test_pandas_reads(ds):
    found = ds.to_pandas(columns=["i", "s"], filter="i < 20")
    pd.testing.assert_frame_equal(found, TABLE.slice(0, 20).select(["i", "s"]).to_pandas())
    typed = ds.to_table(columns=["i"], limit=3).to_pandas(types_mapper=pd.ArrowDtype)
    assert str(typed["i"].dtype) == "int64[pyarrow]"


def test_the_protocol_of_pyarrow_datasets_is_all_there(ds):
    assert isinstance(ds, pyarrow.dataset.Dataset)
    assert isinstance(ds.scanner(), pyarrow.dataset.Scanner)
    assert all(isinstance(each, pyarrow.dataset.Fragment) for each in ds.get_fragments())
    expression = pc.field("i") < 5
    first = TABLE.slice(0, 5)
    assert ds.to_table(filter=expression) == first
    assert ds.scanner(filter=expression).to_reader().read_all() == first
    assert ds.filter(expression).to_table() == first
    assert ds.count_rows(filter=expression) == 5
    assert ds.head(5) == first
    assert ds.take([0, 1, 2, 3, 4]) == first
    assert ds.sort_by([("i", "descending")]).head(1)["i"].to_pylist() == [ROWS - 1]
    other = pyarrow.dataset.dataset(pa.table({"i": [3], "z": ["found"]}))
    near = ds.to_table(columns=["i", "f"], filter="i < 4")
    narrow = lancelet.write_dataset(near, "memory://arrow-readers/near", mode="overwrite")
    joined = narrow.join(other, "i", join_type="inner").to_table()
    assert joined["z"].to_pylist() == ["found"]
    later = pyarrow.dataset.dataset(pa.table({"i": [1], "z": ["near"]}))
    found = narrow.join_asof(later, on="i", by=[], tolerance=1).to_table()
    assert found.sort_by("i")["z"].to_pylist() == ["near", "near", None, None]
    parts = [fragment.to_table(filter=expression) for fragment in ds.get_fragments()]
    assert pa.concat_tables(parts) == first
    assert pa.concat_tables(each.head(2) for each in ds.get_fragments())["i"].to_pylist() == [
        0, 1, 300, 301, 600, 601, 900, 901,
    ]  # fmt: skip
    with pytest.raises(NotImplementedError):
        _ = ds.partition_expression

"""Views equal their query after any history of the source, refreshed at any points."""

import datetime as dt
import decimal
import math
import uuid
from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancelet

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("zone", pa.int32()),
        ("age", pa.int32()),
        ("weight", pa.float64()),
    ]
)
ROWS_QUERY = "SELECT id, age * 2 AS twice, city FROM source WHERE age > 3 OR city IS NULL"
GROUPS_QUERY = (
    "SELECT city, zone, count(*) AS n, count(age) AS ages, sum(age) AS total, min(age) AS low, "
    "max(age) AS high, avg(age) AS mean, sum(weight) AS weight, max(weight) AS top, "
    "min(city) AS name FROM source WHERE id < 60 GROUP BY city, zone"
)
TOTAL_QUERY = "SELECT count(*) AS n, sum(age) AS total, min(weight) AS low FROM source"

NEW_ROWS = st.lists(
    st.tuples(
        st.integers(0, 80),
        st.sampled_from([None, "a", "b", "cc"]),
        st.sampled_from([None, 1, 2]),
        st.none() | st.integers(-5, 9),
        st.none() | st.integers(-20, 20).map(lambda number: number / 4),
    ),
    max_size=8,
)
NUMBERS = st.integers(0, 80)
CHANGES = st.one_of(
    st.tuples(st.just("append"), NEW_ROWS),
    st.tuples(st.just("delete"), NUMBERS),
    st.tuples(st.just("update"), NUMBERS, st.integers(-5, 9)),
    st.tuples(st.just("move"), NUMBERS, st.sampled_from(["a", "b", "new"])),
    st.tuples(st.just("upsert"), NEW_ROWS),
    st.tuples(st.just("overwrite"), NEW_ROWS),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restore"), st.integers(1, 30)),
    st.tuples(st.just("cleanup")),
    st.tuples(st.just("rewrite"), NUMBERS),
    st.tuples(st.just("index")),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("refresh")),
)


def table_of(rows):
    return pa.table(
        [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(SCHEMA)],
        schema=SCHEMA,
    )


def distinct(rows):
    return list({row[0]: row for row in rows}.values())


def apply(dataset, change):
    """Change the source; changes that its state does not allow do nothing."""
    match change:
        case ("append", rows):
            dataset.insert(table_of(rows))
        case ("delete", number):
            dataset.delete(f"id % 7 = {number % 7}")
        case ("update", number, age):
            dataset.update({"age": str(age)}, where=f"id >= {number}")
        case ("move", number, city):
            dataset.update({"city": f"'{city}'"}, where=f"id % 5 = {number % 5}")
        case ("upsert", rows):
            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(table_of(distinct(rows)))
        case ("overwrite", rows):
            lancelet.write_dataset(table_of(rows), dataset, mode="overwrite")
        case ("compact",):
            dataset.optimize.compact_files()
        case ("restore", version):
            versions = [each["version"] for each in dataset.versions()]
            if version in versions:
                dataset.checkout_version(version).restore()
        case ("cleanup",):
            dataset.cleanup_old_versions(older_than=dt.timedelta(0))
        case ("rewrite", number):
            spec = dataset.merge_insert("id").when_matched_update_all()
            spec.write_mode("rewrite_columns").execute(
                pa.table({"id": pa.array([number]), "age": pa.array([7], pa.int32())})
            )
        case ("index",):
            dataset.create_scalar_index("age", "BTREE", replace=True)
    dataset.checkout_latest()


def expected_rows(rows):
    found = [
        (row["id"], None if row["age"] is None else row["age"] * 2, row["city"])
        for row in rows
        if (row["age"] is not None and row["age"] > 3) or row["city"] is None
    ]
    return sorted(found, key=repr)


def values(rows, name):
    return [row[name] for row in rows if row[name] is not None]


def total(found):
    return sum(found) if found else None


def expected_groups(rows):
    groups = defaultdict(list)
    for row in rows:
        if row["id"] < 60:
            groups[row["city"], row["zone"]].append(row)
    expected = {}
    for key, members in groups.items():
        ages, weights = values(members, "age"), values(members, "weight")
        mean = sum(ages) / len(ages) if ages else None
        expected[key] = {
            "n": len(members),
            "ages": len(ages),
            "total": total(ages),
            "low": min(ages, default=None),
            "high": max(ages, default=None),
            "mean": mean,
            "weight": total(weights),
            "top": max(weights, default=None),
            "name": key[0],
        }
    return expected


def check(views, source):
    rows = source.to_table().to_pylist()
    by_row, by_group, in_total = views
    found = by_row.to_table().to_pylist()
    assert sorted((tuple(row.values()) for row in found), key=repr) == expected_rows(rows)
    groups = by_group.to_table().to_pylist()
    assert {(row.pop("city"), row.pop("zone")): row for row in groups} == expected_groups(rows)
    assert in_total.to_table().to_pylist() == [
        {
            "n": len(rows),
            "total": total(values(rows, "age")),
            "low": min(values(rows, "weight"), default=None),
        }
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(NEW_ROWS, st.lists(CHANGES, max_size=10), st.sampled_from([True, True, False]))
def test_views_equal_their_query(rows, changes, stable):
    name = f"memory://{uuid.uuid4().hex}"
    source = lancelet.write_dataset(
        table_of(rows), name, enable_stable_row_ids=stable, max_rows_per_file=4
    )
    views = [
        source.create_view(f"{name}-{number}", query)
        for number, query in enumerate([ROWS_QUERY, GROUPS_QUERY, TOTAL_QUERY])
    ]
    check(views, source)
    for change in [*changes, ("refresh",)]:
        if change == ("refresh",):
            for view in views:
                view.refresh()
                assert view.source_version == source.version
                assert view.explain().kind == "none"
            check(views, source)
        else:
            apply(source, change)


def test_sums_that_are_not_finite_are_computed_again():
    name = f"memory://{uuid.uuid4().hex}"
    source = lancelet.write_dataset(
        pa.table({"k": [1, 1, 2], "x": [math.inf, 1.0, math.nan]}), name, enable_stable_row_ids=True
    )
    view = source.create_view(
        f"{name}-v", "SELECT k, sum(x) AS total, max(x) AS top FROM source GROUP BY k"
    )
    lancelet.write_dataset(pa.table({"k": [5] * 9, "x": [0.5] * 9}), source, mode="append")
    source.checkout_latest()
    source.update({"x": "2.0"}, where="x > 10.0")
    assert view.refresh().kind == "full"
    source.update({"x": "4.0"}, where="k = 1 AND x = 1.0")
    assert view.refresh().kind == "incremental"
    assert {row["k"]: row["total"] for row in view.to_table().to_pylist()}[1] == 6.0


def test_small_sums_of_large_numbers_are_computed_again():
    name = f"memory://{uuid.uuid4().hex}"
    rows = pa.table({"k": [1, 1, 1, 2, 2], "x": [1e20, 1.0, 2.0, 0.0, 0.0]})
    source = lancelet.write_dataset(rows, name, enable_stable_row_ids=True)
    view = source.create_view(f"{name}-v", "SELECT k, sum(x) AS total FROM source GROUP BY k")
    source.delete("x = 1e20")
    assert view.refresh().kind == "incremental"
    assert {row["k"]: row["total"] for row in view.to_table().to_pylist()} == {1: 3.0, 2: 0.0}


def test_dictionaries_and_columns_without_type_are_grouped():
    name = f"memory://{uuid.uuid4().hex}"
    city = pa.array(["x", "y", None, "x", "z", "y"]).dictionary_encode()
    data = pa.table({"id": range(6), "city": city, "none": pa.nulls(6)})
    source = lancelet.write_dataset(data, name, enable_stable_row_ids=True, max_rows_per_file=2)
    query = (
        "SELECT city, min(city) AS low, max(none) AS none, max(id) AS last FROM source "
        "WHERE city IS NOT NULL GROUP BY city"
    )
    view = source.create_view(f"{name}-v", query)
    source.delete("id IN (3, 5)")
    assert view.refresh().kind == "incremental"
    assert view.to_table().sort_by("city").to_pylist() == [
        {"city": city, "low": city, "none": None, "last": last}
        for city, last in (("x", 0), ("y", 1), ("z", 4))
    ]


def test_large_unsigned_sums_wrap_like_the_query():
    name = f"memory://{uuid.uuid4().hex}"
    numbers = pa.array([2**63, 2**63 + 5, 7, 1], pa.uint64())
    source = lancelet.write_dataset(pa.table({"x": numbers}), name, enable_stable_row_ids=True)
    view = source.create_view(f"{name}-v", "SELECT sum(x) AS total FROM source")
    source.delete("x = 7")
    assert view.refresh().kind == "incremental"
    assert view.to_table()["total"].to_pylist() == [(2**64 + 6) % 2**64]


@pytest.mark.parametrize("name", ["f", "day", "decimal", "flag"])
def test_keys_of_all_types_are_groups(name):
    data = pa.table(
        {
            "f": [0.0, -0.0, math.nan, None, math.nan, 1.5],
            "day": pa.array([1, 2, None, 1, 2, 3], pa.date32()),
            "decimal": pa.array([decimal.Decimal("1.5")] * 5 + [None], pa.decimal128(5, 2)),
            "flag": [True, False, None, True, True, False],
        }
    )
    uri = f"memory://{uuid.uuid4().hex}"
    source = lancelet.write_dataset(data, uri, enable_stable_row_ids=True)
    view = source.create_view(
        f"{uri}-v", f"SELECT {name}, count(*) AS n FROM source GROUP BY {name}"
    )
    before = sorted(view.to_table()["n"].to_pylist())
    source.insert(data.slice(2, 2))
    assert view.refresh().kind == "incremental"
    fresh = source.create_view(
        f"{uri}-w", f"SELECT {name}, count(*) AS n FROM source GROUP BY {name}"
    )
    found, wanted = (each.to_table()["n"].to_pylist() for each in (view, fresh))
    assert sorted(found) == sorted(wanted) != before


@pytest.mark.parametrize("name", ["moment", "decimal", "flag", "day", "text", "small"])
def test_aggregates_of_all_types_are_refreshed(name):
    moments = [dt.datetime(2020, 1, number + 1, tzinfo=dt.UTC) for number in range(6)]
    data = pa.table(
        {
            "k": [1, 1, 2, 2, 3, 3],
            "moment": pa.array(moments, pa.timestamp("us", "UTC")),
            "decimal": pa.array([decimal.Decimal(number) for number in range(6)]),
            "flag": [True, False, None, None, True, True],
            "day": pa.array(range(6), pa.date32()),
            "text": ["a", "bb", None, "c", "", "z"],
            "small": pa.array([100] * 6, pa.int8()),
        }
    )
    functions = ["count", "min", "max"]
    if name in {"decimal", "small"}:
        functions += ["sum", "avg"]
    columns = ", ".join(f"{each}({name}) AS {each}_" for each in functions)
    query = f"SELECT k, {columns} FROM source GROUP BY k"
    uri = f"memory://{uuid.uuid4().hex}"
    rows = pa.concat_tables([data] * 6)
    source = lancelet.write_dataset(rows, uri, enable_stable_row_ids=True, max_rows_per_file=5)
    view = source.create_view(f"{uri}-v", query)
    for change in ("_rowid in (1, 4, 7)", "_rowid in (0, 5, 23)", "k = 2 AND _rowid < 15"):
        source.delete(change)
        source.insert(data.slice(2, 2))
        assert view.refresh().kind == "incremental"
        fresh = source.create_view(f"{uri}-{change}", query).to_table()
        assert view.to_table().sort_by("k").equals(fresh.sort_by("k"))

"""Small filtered reads run on the driver and return the same rows as tasks."""

import pytest

from lancelet import spark as ls

COLUMNS = (
    "id",
    "id % 2 = 0 as flag",
    "cast(id as tinyint) as small",
    "cast(id / 3 as decimal(20, 4)) as amount",
    "if(id % 3 = 0, null, concat('row ', id)) as name",
    "cast(concat('b', id) as binary) as raw",
    "date_add(date '2024-01-01', cast(id as int)) as day",
    "timestamp '2024-03-31 02:30:00' + make_interval(0, 0, 0, 0, cast(id as int)) as at",
    "timestamp_ntz '2024-03-31 02:30:00' as local_at",
    "array(cast(id as float), null) as items",
    "map('k', id, 'n', null) as lookup",
    "named_struct('x', id, 'y', array(named_struct('z', id))) as nested",
)


@pytest.fixture(scope="module")
def uri(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("small") / "t.lance")
    ls.write(spark.range(0, 40, 1, 2).selectExpr(*COLUMNS), path)
    return path


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("where", ["id % 7 = 3", "id < 0", "name IS NULL"])
def test_the_driver_and_tasks_read_the_same_rows(spark, uri, where, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        here = ls.scan(spark, uri, filter=where)
        there = ls.scan(spark, uri, filter=where, bytes_on_driver=0)
        assert here.schema == there.schema
        assert sorted(here.collect()) == sorted(there.collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def plan_of(frame, capsys):
    frame.explain()
    return capsys.readouterr().out


def test_large_reads_run_in_tasks(spark, uri, capsys):
    assert "MapInArrow" not in plan_of(ls.scan(spark, uri, filter="id > 30"), capsys)
    for options in ({"bytes_on_driver": 0}, {"bytes_on_driver": 10}):
        frame = ls.scan(spark, uri, filter="id > 30", **options)
        assert "MapInArrow" in plan_of(frame, capsys)
        assert frame.count() == 9
    assert "MapInArrow" in plan_of(ls.scan(spark, uri), capsys)


def test_the_limit_holds(spark, uri):
    assert ls.scan(spark, uri, filter="id > 3", limit=5).count() == 5

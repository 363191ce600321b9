"""A scan returns the rows that match its filter, for every execution strategy."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import lancelet
from lancelet.change.delete import delete_rows
from lancelet.change.rows import read_rows
from lancelet.change.write import FileLimits, FileOptions
from lancelet.change.write_table import WriteMode, WriteOptions, write_table
from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.format.schema import Schema
from lancelet.io.metered import PROCESS_METER, metered
from lancelet.scan.execute import count_rows, execute, execute_to_table
from lancelet.scan.explain import analyze_plan, estimate_reads, explain_plan
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.nodes import read
from lancelet.scan.nodes.splits import splits
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import live_rows_before
from lancelet.scan.scan_options import Ordering, ScanOptions
from lancelet.scan.take import RowNotFoundError, addresses_at, live_addresses
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot


def numbers(count):
    ids = np.arange(count)
    return pa.table(
        {
            "id": ids,
            "mod": pa.array(ids % 7, mask=ids % 11 == 5),
            "text": [f"text {i}" for i in ids],
            "s": pa.array([{"x": int(i), "y": str(i)} for i in ids]),
        }
    )


def make_table(path, data, *, rows_per_file):
    options = WriteOptions(FileOptions(limits=FileLimits(max_rows_per_file=rows_per_file)))
    location = TableLocation.open(path)
    return write_table(location, read_rows(data), WriteMode.CREATE, options)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("scan") / "t.lance")
    first = make_table(path, numbers(500), rows_per_file=120)
    return delete_rows(first, "id % 10 = 4 OR (id >= 240 AND id < 360)").snapshot


def live(data):
    ids = data.column("id").to_numpy()
    return data.filter((ids % 10 != 4) & ((ids < 240) | (ids >= 360)))


def scan(snapshot, **options):
    return execute_to_table(plan_scan(snapshot, ScanOptions(**options)))


@settings(max_examples=40, deadline=None)
@given(
    low=st.integers(-10, 520),
    offset=st.integers(0, 60),
    limit=st.none() | st.integers(0, 60),
    batch_size=st.none() | st.integers(1, 70),
    is_strict=st.booleans(),
    has_filter=st.booleans(),
    columns=st.sampled_from([None, ("text", "id"), ("s.y", "mod"), ()]),
)
def test_a_scan_is_a_filter_and_a_slice_of_all_rows(
    snapshot, low, offset, limit, batch_size, is_strict, has_filter, columns
):
    expected = live(numbers(500))
    if has_filter:
        expected = expected.filter(pa.array(expected.column("id").to_numpy() > low))
    expected = expected.slice(offset, limit)
    options = ScanOptions(
        columns=columns,
        filter=f"id > {low}" if has_filter else None,
        offset=offset,
        limit=limit,
        batch_size=batch_size,
        is_strict=is_strict,
    )
    plan = plan_scan(snapshot, options)
    batches = list(execute(plan))
    assert sum(batch.num_rows for batch in batches) == expected.num_rows == count_rows(plan)
    if batch_size is not None:
        sizes = [batch.num_rows for batch in batches]
        assert all(0 < size <= batch_size for size in sizes)
        assert not is_strict or all(size == batch_size for size in sizes[:-1])
    if columns is None:
        assert pa.Table.from_batches(batches, plan.schema) == expected
    elif columns:
        found = pa.Table.from_batches(batches, plan.schema).to_pydict()
        rows = expected.to_pylist()
        for name in columns:
            wanted = [row["s"]["y"] if name == "s.y" else row[name] for row in rows]
            assert found[name] == wanted


def test_parts_of_a_filter_read_columns_only_for_rows_that_are_left(snapshot):
    plan = plan_scan(snapshot, ScanOptions(filter="id = 33 AND s.y <> 'x' AND mod < 99"))
    read = [[field.name for field in step.fields] for step in plan.steps]
    assert read[0] == ["id"]
    assert sorted(map(tuple, read)) == [("id",), ("mod",), ("s",)]
    assert [child.name for step in plan.steps for f in step.fields for child in f.children] == ["y"]


def test_row_columns_count_live_rows(snapshot):
    names = ("_rowoffset", "_rowaddr", "_rowid")
    found = scan(snapshot, columns=names)
    places = np.arange(snapshot.num_rows, dtype=np.int64)
    assert found.column("_rowoffset").to_numpy().tolist() == places.tolist()
    addresses = addresses_at(snapshot, places)
    assert found.column("_rowaddr").to_numpy().tolist() == addresses.tolist()
    assert live_addresses(snapshot, addresses).tolist() == addresses.tolist()
    assert live_rows_before(snapshot)[-1] == snapshot.num_rows
    assert live_addresses(snapshot, np.array([4, 99 << 32, 500], np.uint64)).tolist() == []


@pytest.mark.parametrize("place", [-1, 10_000])
def test_a_place_outside_of_the_table_is_an_error(snapshot, place):
    with pytest.raises(RowNotFoundError, match="out of range"):
        addresses_at(snapshot, np.array([place]))


def test_deleted_rows_can_be_seen_without_an_id(snapshot):
    found = scan(snapshot, with_deleted=True, with_row_id=True, columns=("id",))
    # Fragments without live rows are removed from the version.
    assert found.num_rows == 380
    deleted = [row["id"] for row in found.to_pylist() if row["_rowid"] is None]
    assert deleted == [i for i in range(500) if i % 10 == 4 and not 240 <= i < 360]


@settings(max_examples=20, deadline=None)
@given(
    ascending=st.booleans(),
    nulls_first=st.booleans(),
    limit=st.none() | st.integers(0, 30),
    offset=st.integers(0, 30),
)
def test_sorting_orders_by_the_first_key_then_the_second(
    snapshot, ascending, nulls_first, limit, offset
):
    order = (Ordering("mod", ascending, nulls_first), Ordering("id", ascending=False))
    found = scan(snapshot, order_by=order, limit=limit, offset=offset, columns=("text", "mod"))
    rows = live(numbers(500)).to_pylist()
    rows.sort(key=lambda row: -row["id"])
    sign = 1 if ascending else -1
    edge = -100 if nulls_first else 100
    rows.sort(key=lambda row: edge if row["mod"] is None else sign * row["mod"])
    stop = None if limit is None else offset + limit
    assert found.column("text").to_pylist() == [row["text"] for row in rows[offset:stop]]


def test_zones_that_cannot_match_are_not_read(tmp_path):
    count = 40_000
    data = pa.table({"id": np.arange(count), "other": np.zeros(count)})
    snapshot = make_table(str(tmp_path / "t.lance"), data, rows_per_file=count)
    plan = plan_scan(snapshot, ScanOptions(filter="id >= 20000 AND id < 20010"))
    ranges = [(split.rows.start, split.rows.stop) for split in splits(plan)]
    assert ranges[0][0] == 16384
    assert ranges[-1][1] == 24576
    assert estimate_reads(plan).rows == 8192
    without = plan_scan(snapshot, replace(plan.options, use_statistics=False))
    assert estimate_reads(without).rows == count
    assert execute_to_table(plan) == execute_to_table(without) == data.slice(20000, 10)


@pytest.mark.parametrize(
    ("text", "matches", "visits"),
    [
        ("id >= 20000 AND id < 20010", lambda ids: (ids >= 20_000) & (ids < 20_010), 1),
        ("id < 9000 AND other > 2", lambda ids: (ids < 9_000) & (ids % 5 > 2), 1),
        ("other = 3", lambda ids: ids % 5 == 3, 1),  # compared while decoded
    ],
)
def test_rows_left_by_statistics_are_read_at_once(tmp_path, monkeypatch, text, matches, visits):
    count = 40_000
    ids = np.arange(count)
    data = pa.table({"id": ids, "other": pa.array(ids % 5, mask=ids % 11 == 0), "more": ids / 2})
    snapshot = make_table(str(tmp_path / "t.lance"), data, rows_per_file=count)
    snapshot = delete_rows(snapshot, "id % 9 = 2").snapshot
    kept = matches(ids) & (ids % 9 != 2) & ((ids % 11 != 0) | ("other" not in text))
    read, asked = FragmentReader.read, []
    monkeypatch.setattr(
        FragmentReader, "read", lambda *given: asked.append(given[2]) or read(*given)
    )
    plan = plan_scan(snapshot, ScanOptions(filter=text))
    assert execute_to_table(plan) == data.filter(pa.array(kept))
    assert len(asked) == visits * len(list(splits(plan)))


def test_pages_of_large_values_that_cannot_match_are_not_read(tmp_path):
    """A page ends with the batch that exceeds 8 MiB, here after 2500 values; a zone has three."""
    count = 9000
    texts = pa.chunked_array(
        [[f"{row:08}" + "x" * 4088 for row in range(at, at + 500)] for at in range(0, count, 500)]
    )
    snapshot = make_table(str(tmp_path / "t.lance"), pa.table({"t": texts}), rows_per_file=count)
    plan = plan_scan(snapshot, ScanOptions(filter="t < '00000100'"))
    assert estimate_reads(plan).rows == 2500
    assert execute_to_table(plan).num_rows == 100


def test_a_count_without_a_filter_reads_nothing(snapshot):
    meter = PROCESS_METER.scope()
    location = snapshot.location.reopened(metered(snapshot.location.store, meter))
    cold = open_snapshot(location)
    before = meter.counts
    assert count_rows(plan_scan(cold, ScanOptions())) == live(numbers(500)).num_rows
    assert meter.counts == before


def test_plans_show_what_is_done_and_what_it_takes(snapshot):
    plan = plan_scan(snapshot, ScanOptions(filter="id > 3", columns=("text",), limit=2))
    text = explain_plan(plan)
    assert [line.strip().split(":")[0] for line in text.splitlines()] == [
        "Project",
        "Limit",
        "Take",
        "Filter",
        "LanceRead",
    ]
    assert "requests=" in text
    assert "measured: rows=2" in analyze_plan(plan)


@pytest.mark.parametrize(
    "wrong",
    [{"limit": -1}, {"offset": -1}, {"batch_size": 0}, {"with_deleted": True}],
    ids=str,
)
def test_options_that_mean_nothing_are_rejected(wrong):
    with pytest.raises(InvalidInputError):
        ScanOptions(**wrong)


def test_columns_are_found_once_by_name(snapshot):
    with pytest.raises(InvalidInputError, match="Duplicate"):
        scan(snapshot, columns=("id", "id"))
    with pytest.raises(LookupError):
        scan(snapshot, columns=("nothing",))


def test_rows_of_another_shape_are_rejected_with_the_difference(snapshot):
    from lancelet.change.fit import fit_to_table

    schema = snapshot.schema
    with pytest.raises(SchemaMismatchError, match=r"unexpected=\[txet\]; did you mean text"):
        fit_to_table(schema, pa.schema([("txet", pa.string())]))
    with pytest.raises(SchemaMismatchError, match=r"`s\.x` should have type int64"):
        fit_to_table(schema, pa.schema([("s", pa.struct([("x", pa.string())]))]))
    part = fit_to_table(schema, pa.schema([("s", pa.struct([("y", pa.string())]))]))
    assert part == Schema(schema.project(["s.y"]).fields, schema.metadata)


def test_a_filter_is_compiled_once_unless_it_uses_the_current_time(snapshot):
    plans = [plan_scan(snapshot, ScanOptions(filter="id > 7 OR id < 3")) for _ in range(2)]
    assert plans[0].filter is plans[1].filter
    text = "id > 7 AND now() >= timestamp '2020-01-01 00:00:00'"
    assert count_rows(plan_scan(snapshot, ScanOptions(filter=text))) > 0
    first, second = (
        plan_scan(snapshot, ScanOptions(filter="cast(now() as string) < text")) for _ in range(2)
    )
    assert first.filter != second.filter


def test_zones_that_may_match_are_one_task_where_little_is_between_them(tmp_path):
    values = np.arange(400_000) % 7
    values[[10, 20_000, 390_000]] = 99
    made = lancelet.write_dataset(pa.table({"a": values}), tmp_path / "t.lance").snapshot
    plan = plan_scan(made, ScanOptions(filter="a = 99"))
    (split,) = splits(plan)
    near, far = split.ranges
    assert (near.start, near.stop <= 32_768, far.start > 360_000) == (0, True, True)
    assert count_rows(plan) == 3


def test_tiny_fragments_between_large_ones_are_read_in_order(tmp_path, monkeypatch):
    data = numbers(700)
    made = make_table(str(tmp_path / "t.lance"), data, rows_per_file=100)
    for tiny_bytes in (0, 1, 1 << 14, 1 << 40):
        monkeypatch.setattr(read, "_TINY_BYTES", tiny_bytes)
        assert scan(made, columns=("id", "text")).equals(data.select(["id", "text"]))


@pytest.mark.parametrize(
    "text", ["id > 33 AND mod < 3", "id > 33 AND mod < 3 AND s.x <> 40", "FALSE"]
)
def test_counting_is_reading_without_the_rows(snapshot, text):
    plan = plan_scan(snapshot, ScanOptions(filter=text))
    assert count_rows(plan) == execute_to_table(plan).num_rows

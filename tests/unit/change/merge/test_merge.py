"""Merges match a loop over dicts for every combination of clauses.

The model is SQL's MERGE written down row by row; the tables have several fragments, deleted rows,
null and repeated keys.
"""

import itertools
import types
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.change.merge.decide import MergeMatchError
from lancelet.change.merge.execute import merge_rows
from lancelet.change.merge.spec import Duplicates, Matched, MergeSpec, RewriteMode
from lancelet.change.rows import read_rows
from lancelet.commit import CommitConflictError
from lancelet.errors import (
    ExpressionError,
    FieldNotFoundError,
    IndexNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
)

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.int32())])
NUMBERS = itertools.count()
KEYS = st.none() | st.integers(0, 12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"k": KEYS, "v": st.none() | st.sampled_from("abc"), "w": st.none() | st.integers(0, 9)}
    ),
    max_size=25,
)


def same(one, other):
    return one is not None and one == other


def greater(one, other):
    return one is not None and other is not None and one > other


def model(table, source, spec, columns):
    """Return the rows after a merge and the counts, or None where it must fail."""
    if spec.duplicates is Duplicates.FIRST_SEEN:
        seen = []
        source = [
            r for r in source if r["k"] is None or not (r["k"] in seen or seen.append(r["k"]))
        ]
    pairs = [(s, t) for s in source for t in table if same(s["k"], t["k"])]
    if spec.matched is Matched.FAIL and pairs:
        return None
    touched = pairs
    if spec.matched is Matched.UPDATE and spec.update_condition is not None:
        touched = [(s, t) for s, t in pairs if greater(s["w"], t["w"])]
    if spec.matched not in {Matched.UPDATE, Matched.DELETE}:
        touched = []
    if len({id(t) for _, t in touched}) < len(touched):
        return None
    after = [t for t in table if not any(t is other for _, other in touched)]
    matched = [t for _, t in pairs]
    counts = [0, 0, 0]
    if spec.matched is Matched.UPDATE:
        after += [{**t, **{c: s[c] for c in columns}} for s, t in touched]
        counts[1] = len(touched)
    elif spec.matched is Matched.DELETE:
        counts[2] = len(touched)
    if spec.deletes_unmatched:
        gone = [t for t in after if any(t is each for each in table)]
        gone = [t for t in gone if not any(t is each for each in matched)]
        if spec.delete_condition is not None:
            gone = [t for t in gone if t["w"] is not None and t["w"] < 5]
        after = [t for t in after if not any(t is each for each in gone)]
        counts[2] += len(gone)
    if spec.inserts:
        new = [s for s in source if not any(s is other for other, _ in pairs)]
        after += [{c: s[c] if c in columns else None for c in SCHEMA.names} for s in new]
        counts[0] = len(new)
    return after, counts


def in_order(rows):
    return sorted((dict(sorted(row.items())) for row in rows), key=repr)


@st.composite
def specs(draw):
    matched = draw(st.sampled_from(list(Matched)))
    condition = "source.w > target.w" if matched is Matched.UPDATE and draw(st.booleans()) else None
    deletes = draw(st.booleans())
    return MergeSpec(
        on=("k",),
        matched=matched,
        update_condition=condition,
        inserts=draw(st.booleans()) or (matched is Matched.KEEP and not deletes),
        deletes_unmatched=deletes,
        delete_condition="w < 5" if draw(st.booleans()) else None,
        duplicates=draw(st.sampled_from(list(Duplicates))),
        memory_limit=draw(st.sampled_from([0, 10**9])),
    )


def table_of(rows, *, stable=False):
    """Make a table in memory of several fragments, some rows of it deleted."""
    path = f"memory://merge-{next(NUMBERS)}/t"
    padded = [dict.fromkeys(SCHEMA.names, None) | {"v": "deleted"}, *rows]
    dataset = lancelet.write_dataset(
        pa.Table.from_pylist(padded, SCHEMA),
        path,
        max_rows_per_file=7,
        enable_stable_row_ids=stable,
    )
    dataset.delete("v = 'deleted'")
    return dataset


@given(
    table=ROWS,
    source=ROWS,
    spec=specs(),
    columns=st.sampled_from([SCHEMA.names, ["k", "v"], ["w", "k"]]),
    stable=st.booleans(),
    as_stream=st.booleans(),
)
def test_a_merge_matches_the_model(table, source, spec, columns, stable, as_stream):
    if spec.update_condition is not None:
        columns = SCHEMA.names
    dataset = table_of(table, stable=stable)
    expected = model(table, source, spec, columns)
    new = pa.Table.from_pylist(source, SCHEMA).select(columns)
    rows = read_rows(new.to_reader(4) if as_stream else new)
    if expected is None:
        with pytest.raises(MergeMatchError):
            merge_rows(dataset.snapshot, rows, spec)
        assert dataset.latest_version == dataset.version
        return
    did = merge_rows(dataset.snapshot, rows, spec).statistics
    dataset.checkout_latest()
    after, counts = expected
    assert in_order(dataset.to_table().to_pylist()) == in_order(after)
    assert [did.num_inserted_rows, did.num_updated_rows, did.num_deleted_rows] == counts
    dataset.validate()


@given(table=ROWS, source=ROWS)
def test_columns_patched_in_place_equal_those_of_rewritten_rows(table, source):
    outcomes = []
    for mode in (RewriteMode.ROWS, RewriteMode.COLUMNS):
        dataset = table_of(table, stable=True)
        spec = MergeSpec(("k",), Matched.UPDATE, mode=mode)
        rows = read_rows(pa.Table.from_pylist(source, SCHEMA).select(["k", "w"]))
        try:
            merge_rows(dataset.snapshot, rows, spec)
        except MergeMatchError as error:
            outcomes.append(str(error))
            continue
        dataset.checkout_latest()
        names = [*SCHEMA.names, "_rowid", "_row_created_at_version"]
        names += ["_row_last_updated_at_version"]
        outcomes.append(in_order(dataset.to_table(columns=names).to_pylist()))
    assert outcomes[0] == outcomes[1]


@pytest.fixture
def dataset(request):
    rows = [{"k": i, "v": f"v{i}", "w": i} for i in range(10)]
    return lancelet.write_dataset(
        pa.Table.from_pylist(rows, SCHEMA), f"memory://{request.node.name}/t", max_rows_per_file=4
    )


def source(*rows):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def upsert(dataset, on="k"):
    return dataset.merge_insert(on).when_matched_update_all().when_not_matched_insert_all()


def test_rows_keep_their_ids_and_their_age(request):
    rows = source((1, "a", 1), (2, "b", 2), (3, "c", 3))
    dataset = lancelet.write_dataset(
        rows, f"memory://{request.node.name}/t", enable_stable_row_ids=True
    )
    upsert(dataset).execute(source((9, "n", 9), (2, "B", 2)))
    found = dataset.to_table(
        columns=["k", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    )
    assert found.to_pydict() == {
        "k": [1, 3, 2, 9],
        "_rowid": [0, 2, 1, 3],
        "_row_created_at_version": [1, 1, 1, 2],
        "_row_last_updated_at_version": [1, 1, 2, 2],
    }


def test_nothing_but_keys_is_read_of_rows_that_do_not_match(request):
    rows = pa.table({"k": range(20_000), "wide": [f"{i:01000}" for i in range(20_000)]})
    dataset = lancelet.write_dataset(rows, f"memory://{request.node.name}/t")
    dataset = lancelet.dataset(dataset.uri)
    upsert(dataset).execute(pa.table({"k": [30_000, 7], "wide": ["x", "y"]}))
    assert dataset.io_stats_incremental().read_bytes < 8 * 20_000 + 50_000


def test_fragments_without_any_key_of_the_source_are_not_read(request):
    """Goal: an upsert of recent keys reads recent fragments only."""
    rows = pa.table({"k": range(40_000)})
    dataset = lancelet.write_dataset(
        rows, f"memory://{request.node.name}/t", max_rows_per_file=10_000
    )
    plan = upsert(dataset).analyze_plan(pa.table({"k": range(39_000, 41_000)}))
    assert "num_fragments=1," in plan


def test_a_key_may_be_a_field_of_a_struct(request):
    schema = pa.schema([("s", pa.struct([("k", pa.string()), ("x", pa.int8())])), ("v", pa.int8())])
    rows = [
        {"s": {"k": "a", "x": 1}, "v": 1},
        {"s": {"k": "b", "x": 2}, "v": 2},
        {"s": None, "v": 3},
    ]
    path = f"memory://{request.node.name}/t"
    dataset = lancelet.write_dataset(pa.Table.from_pylist(rows, schema), path)
    new = [{"s": {"k": "b"}, "v": 20}, {"s": {"k": "c"}, "v": 30}, {"s": None, "v": 40}]
    part = pa.schema([("s", pa.struct([("k", pa.string())])), ("v", pa.int8())])
    did = upsert(dataset, "s.k").execute(pa.Table.from_pylist(new, part))
    assert did == {"num_inserted_rows": 2, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert dataset.to_table().to_pylist() == [
        rows[0],
        rows[2],
        {"s": {"k": "b", "x": 2}, "v": 20},
        {"s": {"k": "c", "x": None}, "v": 30},
        {"s": None, "v": 40},
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.int8(), pa.list_(pa.int8())])
def test_an_empty_source_matches_nothing(request, kind):
    path = f"memory://{request.node.name}/t"
    dataset = lancelet.write_dataset(pa.table({"k": pa.nulls(3, kind)}), path)
    did = upsert(dataset).execute(pa.table({"k": pa.array([], kind)}))
    assert did == {"num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0}


def test_the_case_of_a_key_does_not_matter(dataset):
    assert upsert(dataset, "K").execute(source((1, "x", 1)))["num_updated_rows"] == 1


def test_the_primary_key_is_the_default(request):
    field = pa.field("k", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([field, ("v", pa.string())])
    path = f"memory://{request.node.name}/t"
    dataset = lancelet.write_dataset(pa.table([[1, 2], ["a", "b"]], schema=schema), path)
    upsert(dataset, None).execute(pa.table([[2], ["c"]], schema=schema))
    assert dataset.to_table().column("v").to_pylist() == ["a", "c"]


@pytest.mark.parametrize("on", [None, []])
def test_a_merge_without_key_is_rejected(dataset, on):
    with pytest.raises(InvalidInputError, match="requires join keys"):
        upsert(dataset, on).execute(source((1, "x", 1)))


def test_a_merge_that_changes_nothing_is_rejected(dataset):
    with pytest.raises(InvalidInputError, match="not configured to change"):
        dataset.merge_insert("k").execute(source((1, "x", 1)))


def test_a_key_that_is_nowhere_is_rejected(dataset):
    with pytest.raises(FieldNotFoundError, match="key column 'nope'"):
        upsert(dataset, "nope").execute(source((1, "x", 1)))
    with pytest.raises(FieldNotFoundError, match="the source lacks a key column"):
        upsert(dataset).execute(pa.table({"v": ["x"]}))


def test_ambiguous_rows_are_named(dataset):
    with pytest.raises(OSError, match=r"multiple source rows .* on \(k = 2, v = \"v2\"\)"):
        upsert(dataset, ["k", "v"]).execute(source((1, "x", 1), (2, "v2", 1), (2, "v2", 2)))


def test_matched_rows_that_must_not_be_are_named(dataset):
    builder = dataset.merge_insert("k").when_matched_fail().when_not_matched_insert_all()
    with pytest.raises(OSError, match="found matching row with key values: k = 4"):
        builder.execute(source((44, "x", 1), (4, "x", 1)))
    assert builder.execute(source((44, "x", 1)))["num_inserted_rows"] == 1


def test_columns_that_do_not_fit_are_rejected(dataset):
    with pytest.raises(SchemaMismatchError, match="`k` should have type int64"):
        upsert(dataset).execute(pa.table({"k": ["1"]}))
    with pytest.raises(SchemaMismatchError, match="unexpected=\\[z\\]"):
        upsert(dataset).execute(pa.table({"k": [1], "z": [1]}))


def test_conditions_that_cannot_be_understood_are_rejected(dataset):
    builder = dataset.merge_insert("k").when_matched_update_all("source.q > 1")
    with pytest.raises(ExpressionError, match="No field named q in source"):
        builder.execute(source((1, "x", 1)))
    with pytest.raises(OSError, match="No field named q in source"):
        builder.explain_plan()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b.when_not_matched_insert_all(), "adds rows"),
        (lambda b: b.when_not_matched_by_source_delete(), "removes rows"),
        (lambda b: b.when_matched_delete(), "must update rather"),
        (lambda b: b.data_storage_version("2.1"), "another version"),
    ],
)
def test_input_that_cannot_be_done_in_place_is_rejected(dataset, change, reason):
    builder = dataset.merge_insert("k").when_matched_update_all().write_mode("rewrite_columns")
    with pytest.raises(OSError, match=reason):
        change(builder).execute(pa.table({"k": [1], "v": ["x"]}))


def test_only_some_columns_can_be_written_in_place(dataset):
    builder = dataset.merge_insert("k").when_matched_update_all().write_mode("rewrite_columns")
    with pytest.raises(OSError, match="covers every dataset column"):
        builder.execute(source((1, "x", 1)))
    with pytest.raises(OSError, match="no column besides the join key"):
        builder.execute(pa.table({"k": [1]}))
    with pytest.raises(InvalidInputError, match="Invalid write_mode"):
        builder.write_mode("sideways")


def test_a_dry_run_reports_what_the_run_then_does(dataset):
    rows = source((1, "x", 1), (50, "y", 2))
    report = upsert(dataset).execute(rows, dry_run=True)
    assert dataset.latest_version == 1
    assert (report.operation, report.rows, report.files) == ("Update", 2, 2)
    assert report.bytes > 0
    assert report.conflicts == ()
    upsert(dataset).execute(rows)
    assert dataset.latest_version == 2


def test_a_dry_run_names_the_conflicting_rows(dataset):
    other = lancelet.dataset(dataset.uri)
    upsert(other).execute(source((50, "y", 2)))
    (conflict,) = upsert(dataset).execute(source((50, "z", 3)), dry_run=True).conflicts
    assert conflict.startswith("version 2 (Update): both may have inserted rows with the same keys")


def test_uncommitted_writes_can_be_committed(dataset):
    transaction, did = upsert(dataset).execute_uncommitted(source((1, "x", 1), (50, "y", 2)))
    assert did == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert dataset.latest_version == 1
    after = lancelet.LanceDataset.commit(dataset, transaction)
    assert after.count_rows() == 11


def test_a_stream_longer_than_the_limit_is_merged_from_a_file(dataset):
    rows = source(*((i, f"x{i}", i) for i in range(5, 500)))
    did = upsert(dataset).memory_limit(1000).execute(rows.to_reader(50))
    assert (did["num_inserted_rows"], did["num_updated_rows"]) == (490, 5)
    assert dataset.count_rows("v = concat('x', cast(k AS string))") == 495


def test_new_files_go_to_the_bases_that_are_named(tmp_path):
    cold = tmp_path / "cold"
    cold.mkdir()
    dataset = lancelet.write_dataset(
        source((1, "a", 1)),
        str(tmp_path / "t"),
        initial_bases=[lancelet.DatasetBasePath(str(cold), name="cold", is_dataset_root=False)],
    )
    builder = upsert(dataset).target_bases(["cold"])
    assert builder.execute(source((1, "b", 2)), dry_run=True).files == 1
    assert list(cold.iterdir()) == []
    builder.execute(source((1, "b", 2)))
    assert len(list(cold.iterdir())) == 1
    upsert(dataset).target_all_bases().execute(source((1, "c", 3)))
    upsert(dataset).target_bases([dataset.uri]).execute(source((2, "d", 4)))
    assert len(list(cold.iterdir())) == 1
    assert in_order(dataset.to_table().to_pylist()) == [
        {"k": 1, "v": "c", "w": 3},
        {"k": 2, "v": "d", "w": 4},
    ]


def test_cleaning_up_can_be_left_to_others(tmp_path):
    dataset = lancelet.write_dataset(
        source((1, "a", 1)),
        str(tmp_path / "t"),
        auto_cleanup_options={"interval": 1, "older_than_seconds": 0},
    )
    for number in range(3):
        upsert(dataset).skip_auto_cleanup().execute(source((1, "b", number)))
    assert len(dataset.versions()) == 4
    upsert(dataset).execute(source((1, "b", 9)))
    assert len(dataset.versions()) < 5


def test_merged_shards_need_a_table_that_keeps_account_of_them(dataset):
    shard = types.SimpleNamespace(shard_id=str(uuid.uuid4()), generation=3)
    with pytest.raises(IndexNotFoundError, match="no state of merged shards"):
        upsert(dataset).mark_sstables_as_compacted([shard]).execute(source((1, "b", 1)))


def test_keys_that_were_inserted_are_known_of_uncommitted_merges_too(dataset):
    transaction, _ = upsert(dataset).execute_uncommitted(source((50, "y", 2)))
    upsert(dataset).execute(source((50, "z", 3)))
    with pytest.raises(CommitConflictError, match="rows with the same keys"):
        lancelet.LanceDataset.commit(dataset, transaction)


def test_matrices_of_a_sliced_source_are_merged():
    rows = 40
    inner = pa.FixedSizeListArray.from_arrays(pa.array(range(rows * 6), pa.int32()), 3)
    table = pa.table({"k": range(rows), "m": pa.FixedSizeListArray.from_arrays(inner, 2)})
    dataset = lancelet.write_dataset(table.slice(0, 20), "memory://merged-matrices/t")
    dataset.delete("k % 3 = 1")
    dataset.merge_insert("k").when_matched_update_all().execute(table.slice(3, 30))
    dataset.merge_insert("k").when_not_matched_insert_all().execute(table.slice(5, 30))
    expected = [row for row in table.slice(0, 35).to_pylist() if row["k"] not in (1, 4)]
    assert dataset.to_table().sort_by("k").to_pylist() == expected


def test_an_uncommitted_merge_must_change_something(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"id": [1], "v": [2]}), str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match="not configured to change"):
        dataset.merge_insert("id").execute_uncommitted(pa.table({"id": [1], "v": [3]}))

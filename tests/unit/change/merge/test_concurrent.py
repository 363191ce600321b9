"""If two merges insert the same key, the later one updates it; other merges do not conflict."""

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.commit import CommitConflictError
from lancelet.errors import SchemaMismatchError


@pytest.fixture
def handles(request):
    """Return two handles of the same version."""
    rows = pa.table({"k": [1, 2], "v": [10, 20]})
    first = lancelet.write_dataset(rows, f"memory://{request.node.name}/t", max_rows_per_file=1)
    return first, lancelet.dataset(first.uri)


def upsert(dataset, retries=0, **columns):
    builder = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    return builder.conflict_retries(retries).execute(pa.table(columns))


def contents(dataset):
    dataset.checkout_latest()
    rows = dataset.to_table().to_pylist()
    return sorted((row["k"], row["v"]) for row in rows)


def test_one_key_inserted_by_both_is_there_once(handles):
    first, second = handles
    upsert(first, k=[7], v=[1])
    with pytest.raises(CommitConflictError, match="both may have inserted rows with the same keys"):
        upsert(second, k=[7], v=[2])
    assert upsert(second, retries=1, k=[7], v=[2])["num_updated_rows"] == 1
    assert contents(second) == [(1, 10), (2, 20), (7, 2)]


def test_a_key_that_was_appended_meanwhile_is_updated(handles):
    first, second = handles
    first.insert(pa.table({"k": [7], "v": [1]}))
    with pytest.raises(CommitConflictError, match="rows were added"):
        upsert(second, k=[7], v=[2])
    upsert(second, retries=1, k=[7], v=[2])
    assert contents(second) == [(1, 10), (2, 20), (7, 2)]


def test_a_key_that_an_update_made_meanwhile_is_updated(handles):
    first, second = handles
    first.update({"k": "7"}, where="k = 2")
    with pytest.raises(CommitConflictError, match="without listing their keys"):
        upsert(second, k=[7], v=[2])
    upsert(second, retries=1, k=[7], v=[2])
    assert contents(second) == [(1, 10), (7, 2)]


def test_appends_of_other_keys_do_not_cost_the_work(handles):
    """An upsert makes progress during a stream of appends, and applies each change once."""
    first, second = handles
    for number in range(100, 105):
        first.insert(pa.table({"k": [number], "v": [0]}))
    upsert(second, k=[1, 7], v=[11, 70])
    assert contents(second)[:3] == [(1, 11), (2, 20), (7, 70)]
    assert second.version == 7


def test_an_update_of_other_columns_and_rows_does_not_conflict(handles):
    first, second = handles
    first.update({"v": "v + 1"}, where="k = 2")
    upsert(second, k=[1, 7], v=[11, 70])
    assert contents(second) == [(1, 11), (2, 21), (7, 70)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.float64(), pa.decimal128(20, 1)])
def test_keys_that_filters_cannot_hold_are_compared_themselves(request, kind):
    path = f"memory://{request.node.name}/t"
    rows = pa.table({"k": pa.array([1, 2]).cast(pa.int32()).cast(kind), "v": [1, 2]})
    first = lancelet.write_dataset(rows, path)
    second, third = lancelet.dataset(path), lancelet.dataset(path)
    new = pa.array([7, 8], pa.int32()).cast(kind)
    upsert(first, k=new.slice(0, 1), v=[7])
    upsert(second, k=new.slice(1, 1), v=[8])
    with pytest.raises(CommitConflictError):
        upsert(third, k=new, v=[0, 0])
    assert [v for _, v in contents(third)] == [1, 2, 7, 8]


def test_changes_of_the_same_rows_always_conflict(handles):
    first, second = handles
    upsert(first, k=[1, 8], v=[11, 0])
    with pytest.raises(CommitConflictError, match=r"changed the same rows|removed fragments"):
        upsert(second, k=[1, 9], v=[12, 0])


def test_deletions_after_columns_were_rewritten_look_again(handles):
    """Goal: a whole fragment is not deleted for values that it no longer has."""
    first, second = handles
    first.add_columns({"w": "v"})
    second.checkout_latest()
    builder = first.merge_insert("k").when_matched_update_all().write_mode("rewrite_columns")
    builder.execute(pa.table({"k": [1], "v": [99]}))
    with pytest.raises(CommitConflictError, match="rewrote columns"):
        second.delete("v = 10", conflict_retries=0)
    assert second.delete("v = 10") == {"num_deleted_rows": 0}
    assert second.count_rows() == 2


def test_a_merge_that_inserts_nothing_follows_appends(handles):
    first, second = handles
    first.insert(pa.table({"k": [7], "v": [1]}))
    builder = second.merge_insert("k").when_matched_update_all().conflict_retries(0)
    builder.execute(pa.table({"k": [1, 7], "v": [11, 77]}))
    assert contents(second) == [(1, 11), (2, 20), (7, 1)]


def renamed_and_another(dataset):
    dataset.alter_columns({"path": "v", "name": "old"})
    dataset.add_columns(pa.schema([pa.field("v", pa.int64())]))


def dropped_and_another(dataset):
    dataset.drop_columns(["v"])
    dataset.add_columns(pa.schema([pa.field("v", pa.int64())]))


@pytest.mark.parametrize("change", [renamed_and_another, dropped_and_another])
@pytest.mark.parametrize("module", [lancelet, lance])
def test_names_count_where_columns_changed_meanwhile(tmp_path, module, change):
    """A retried merge writes values to the columns that have the names then."""
    rows = pa.table({"k": [1, 2], "v": [10, 20]})
    handle = module.write_dataset(rows, str(tmp_path / "t"))
    change(module.dataset(handle.uri))
    upsert(handle, retries=1, k=[2, 7], v=[5, 6])
    found = module.dataset(handle.uri).to_table().sort_by("k")
    assert found.select(["k", "v"]).to_pydict() == {"k": [1, 2, 7], "v": [None, 5, 6]}
    if "old" in found.column_names:
        assert found["old"].to_pylist() == [10, 20, None]


def test_rows_that_fit_no_more_are_rejected(handles):
    first, second = handles
    first.drop_columns(["v"])
    first.add_columns(pa.schema([pa.field("v", pa.string())]))
    with pytest.raises(SchemaMismatchError, match="should have type"):
        upsert(second, retries=1, k=[7], v=[2])

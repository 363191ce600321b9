"""The change feed compared with a model: rows by id at every version."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    UnsupportedError,
    VersionNotFoundError,
)
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest_file import render_manifest_file
from lancelet.upkeep.changes.between import RowsNotTrackedError
from lancelet.upkeep.changes.rows import candidates

_counter = itertools.count()


def _rows(ids: list[int], value: int) -> pa.Table:
    names = [None if i % 3 == 0 else f"row {i}" for i in ids]
    values = pa.array([value] * len(ids), pa.int32())
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": values, "s": pa.array(names, pa.string())}
    )


def _contents(dataset: lancelet.LanceDataset) -> dict[int, dict]:
    return {row["id"]: row for row in dataset.to_table().to_pylist()}


def _difference(before: dict[int, dict], after: dict[int, dict]) -> list[tuple]:
    found = [("insert", None, after[key]) for key in after.keys() - before.keys()]
    found += [("delete", before[key], None) for key in before.keys() - after.keys()]
    for key in before.keys() & after.keys():
        if before[key] != after[key]:
            found.append(("update", before[key], after[key]))
    return sorted(found, key=repr)


def _fed(reader: pa.RecordBatchReader) -> list[tuple]:
    rows = reader.read_all().to_pylist()
    return sorted(((row["kind"], row["before"], row["after"]) for row in rows), key=repr)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(2, 5)),
        st.tuples(st.just("update"), st.integers(2, 5)),
        st.tuples(st.just("upsert"), st.integers(1, 4)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("restore"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=6,
)


def _apply(
    dataset: lancelet.LanceDataset, step: tuple[str, int], number: int, fresh: itertools.count
) -> lancelet.LanceDataset:
    kind, argument = step
    match kind:
        case "append":
            ids = [next(fresh) for _ in range(argument)]
            return lancelet.write_dataset(_rows(ids, number), dataset, mode="append")
        case "delete":
            dataset.delete(f"id % {argument} = 1")
        case "update":
            dataset.update({"v": str(1000 + number)}, where=f"id % {argument} = 0")
        case "upsert":
            ids = [*list(_contents(dataset))[:argument], next(fresh)]
            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(_rows(ids, 2000 + number))
        case "compact":
            dataset.optimize.compact_files()
        case "restore":
            dataset.checkout_version(max(1, dataset.version - argument)).restore()
            dataset.checkout_latest()
    return dataset


@settings(deadline=None, max_examples=25)
@given(steps=_STEPS)
def test_changes_are_the_difference_of_any_two_versions(steps: list[tuple[str, int]]) -> None:
    fresh = itertools.count()
    uri = f"memory://changes-{next(_counter)}/t.lance"
    first = _rows([next(fresh) for _ in range(6)], 0)
    dataset = lancelet.write_dataset(first, uri, enable_stable_row_ids=True)
    for number, step in enumerate(steps):
        dataset = _apply(dataset, step, number, fresh)
    versions = range(1, dataset.version + 1)
    contents = {version: _contents(dataset.checkout_version(version)) for version in versions}
    for begin, end in itertools.combinations_with_replacement(versions, 2):
        expected = _difference(contents[begin], contents[end])
        assert _fed(dataset.changes(begin, end)) == expected, (begin, end)
        assert _fed(dataset.changes(begin, end, on="id")) == expected, (begin, end)


def test_updates_to_equal_values_are_detected_by_row_ids_and_not_by_keys(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=True)
    dataset.update({"v": "0"}, where="id = 1")
    assert [kind for kind, *_ in _fed(dataset.changes(1))] == ["update"]
    assert _fed(dataset.changes(1, on="id")) == []


@pytest.mark.parametrize("stable", [True, False])
def test_overwriting_deletes_all_rows_and_inserts_others(tmp_path: Path, stable: bool) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=stable)
    dataset = lancelet.write_dataset(_rows([1, 2], 0), dataset, mode="overwrite")
    kinds = dataset.changes(1).read_all()["kind"].to_pylist()
    assert kinds == ["insert", "insert", "delete", "delete"]
    assert _fed(dataset.changes(1, on=["id"])) == []


def test_columns_that_were_added_are_an_update_where_rows_record_it(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=True)
    dataset.add_columns({"w": "v + 1"})
    dataset.drop_columns(["s"])
    after = {"id": 1, "v": 0, "w": 1}
    assert _fed(dataset.changes(1))[0] == ("update", {"id": 1, "v": 0, "s": "row 1"}, after)
    assert _fed(dataset.changes(2)) == _fed(dataset.changes(1, on="id")) == []
    dataset.update({"w": "7"}, where="id = 1")
    update = dataset.changes(2, kinds=["update"], columns=["s", "w"])
    assert _fed(update) == [("update", {"s": "row 1", "w": 1}, {"w": 7})]
    plain = lancelet.write_dataset(_rows([1, 2], 0), tmp_path / "plain")
    plain.add_columns({"w": "v + 1"})
    assert _fed(plain.changes(1)) == []


def test_without_stable_row_ids_appends_and_deletes_are_reported(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2, 3], 0), tmp_path)
    dataset = lancelet.write_dataset(_rows([4], 0), dataset, mode="append")
    dataset.delete("id = 2")
    found = dataset.changes(1, columns=["id"]).read_all()
    assert found.to_pylist() == [
        {"kind": "insert", "_rowid": 1 << 32, "before": None, "after": {"id": 4}},
        {"kind": "delete", "_rowid": 1, "before": {"id": 2}, "after": None},
    ]


@pytest.mark.parametrize("how", ["update", "compact"])
def test_rows_that_moved_without_stable_row_ids_are_an_error(tmp_path: Path, how: str) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2, 3], 0), tmp_path, max_rows_per_file=1)
    dataset = _apply(dataset, (how, 2), 1, itertools.count())
    with pytest.raises(RowsNotTrackedError, match="on=") as caught:
        dataset.changes(1)
    assert isinstance(caught.value, UnsupportedError | ValueError)
    assert caught.value.facts["operation"] in {"Update", "Rewrite"}
    expected = [] if how == "compact" else ["update"]
    assert [kind for kind, *_ in _fed(dataset.changes(1, on="id"))] == expected


def test_a_delta_without_stable_row_ids_is_an_error(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2, 3], 0), tmp_path)
    dataset = lancelet.write_dataset(_rows([4], 0), dataset, mode="append")
    delta = dataset.delta(1)
    for ask in (delta.get_inserted_rows, delta.get_updated_rows, delta.get_deleted_row_ids):
        with pytest.raises(ValueError, match="without stable row ids"):
            ask()
    assert len(delta.list_transactions()) == 1


def test_changes_since_before_a_migration_need_keys(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2, 3], 0), tmp_path)
    dataset.migrate_to_stable_row_ids()
    dataset.update({"v": "5"}, where="id = 2")
    with pytest.raises(RowsNotTrackedError, match="enabled after"):
        dataset.changes(1)
    with pytest.raises(RowsNotTrackedError):
        dataset.delta(1).get_updated_rows()
    assert [kind for kind, *_ in _fed(dataset.changes(2))] == ["update"]
    assert [kind for kind, *_ in _fed(dataset.changes(1, on="id"))] == ["update"]


def test_values_replaced_in_files_are_an_error_and_found_by_key(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=True)
    other = lancelet.write_dataset(_rows([1, 2], 7), tmp_path / "other")
    group = _replacement_of_v(dataset, other)
    dataset = lancelet.LanceDataset.commit(
        dataset, lancelet.LanceOperation.DataReplacement([group]), read_version=1
    )
    assert dataset.to_table()["v"].to_pylist() == [7, 7]
    with pytest.raises(RowsNotTrackedError, match="without recording"):
        dataset.changes(1)
    assert [kind for kind, *_ in _fed(dataset.changes(1, on="id"))] == ["update", "update"]
    dataset.checkout_version(1).restore()
    dataset.checkout_latest()
    assert dataset.to_table()["v"].to_pylist() == [0, 0]
    with pytest.raises(RowsNotTrackedError, match="without recording"):
        dataset.changes(2)


def test_columns_that_are_replaced_without_row_versions_are_an_error(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=True)
    values = pa.table({"id": [1], "v": pa.array([7], pa.int32())})
    fragment, fields = dataset.get_fragments()[0].update_columns(values, left_on="id")
    update = lancelet.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    dataset = lancelet.LanceDataset.commit(dataset, update, read_version=1)
    assert dataset.to_table()["v"].to_pylist() == [7, 0]
    with pytest.raises(RowsNotTrackedError, match="without recording"):
        dataset.changes(1)
    merge = dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    merge.execute(values.set_column(1, "v", pa.array([8], pa.int32())))
    assert [kind for kind, *_ in _fed(dataset.changes(2))] == ["update"]


def _replacement_of_v(
    dataset: lancelet.LanceDataset, other: lancelet.LanceDataset
) -> lancelet.LanceOperation.DataReplacementGroup:
    """Return the replacement of column v by a file with the values of another dataset."""
    fragment = dataset.get_fragments()[0]
    path = "replaced.lance"
    store = dataset.snapshot.location.store
    values = other.to_table(columns=["v"])
    with lancelet.file.LanceFileWriter(f"{store.uri}/data/{path}", values.schema) as writer:
        writer.write_batch(values)
    size = store.info(f"data/{path}").size
    major, minor = (
        fragment.metadata.files[0].file_major_version,
        fragment.metadata.files[0].file_minor_version,
    )
    file = type(fragment.metadata.files[0])(path, [1], [0], major, minor, size)
    return lancelet.LanceOperation.DataReplacementGroup(fragment.fragment_id, file)


def test_removed_versions_are_an_error(tmp_path: Path) -> None:
    from datetime import timedelta

    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=True)
    dataset.tags.create("first", 1)
    dataset.delete("id = 1")
    dataset = lancelet.write_dataset(_rows([3], 0), dataset, mode="append")
    dataset.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    with pytest.raises(VersionNotFoundError) as caught:
        dataset.changes("first")
    assert "on=" in caught.value.__notes__[0]
    assert caught.value.facts["version"] == 2
    assert [kind for kind, *_ in _fed(dataset.changes("first", on="id"))] == ["delete", "insert"]
    with pytest.raises(VersionNotFoundError):
        dataset.changes(2)
    with pytest.raises(VersionNotFoundError):
        dataset.delta(2).get_inserted_rows()


def test_changes_are_selected_by_time_and_tag(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 2], 0), tmp_path, enable_stable_row_ids=True)
    committed = dataset.get_version()["timestamp"]
    dataset.delete("id = 1")
    dataset.tags.create("after", 2)
    dataset.delete("id = 2")
    assert len(_fed(dataset.changes(committed))) == 2
    assert len(_fed(dataset.changes(committed, "after"))) == 1


def test_wrong_arguments_are_errors(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_rows([1, 1], 0), tmp_path, enable_stable_row_ids=True)
    dataset.delete("id = 1 and s = 'row 1'")
    with pytest.raises(InvalidInputError, match="newer"):
        dataset.changes(2, 1)
    with pytest.raises(InvalidInputError, match="newer"):
        dataset.delta(begin_version=2, end_version=1)
    with pytest.raises(InvalidInputError, match="unknown kind of change"):
        dataset.changes(1, kinds=["moved"])
    with pytest.raises(FieldNotFoundError):
        dataset.changes(1, columns=["nope"])
    with pytest.raises(InvalidInputError, match="several rows have the same key"):
        dataset.changes(1, on="id").read_all()
    with pytest.raises(InvalidInputError, match="at least one column"):
        dataset.changes(1, on=[])
    with pytest.raises(ValueError, match="either"):
        dataset.delta()
    with pytest.raises(ValueError, match="both"):
        dataset.delta(begin_version=1)
    with pytest.raises(OverflowError):
        dataset.delta(-1)
    with pytest.raises(VersionNotFoundError):
        dataset.delta(begin_version=1, end_version=9).list_transactions()


def test_images_of_no_columns_and_of_nested_ones(tmp_path: Path) -> None:
    nested = pa.table({"s": [{"a": 1, "l": [1, 2]}, None], "m": [[{"x": 1.5}], []]})
    dataset = lancelet.write_dataset(nested, tmp_path, enable_stable_row_ids=True)
    dataset.delete("s.a = 1")
    assert _fed(dataset.changes(1)) == [("delete", nested.to_pylist()[0], None)]
    assert _fed(dataset.changes(1, columns=["s.a"])) == [("delete", {"s.a": 1}, None)]
    assert _fed(dataset.changes(1, columns=[])) == [("delete", {}, None)]


def test_rows_that_a_manifest_claims_are_looked_at_in_pieces(tmp_path):
    """A manifest may claim any number of rows of a fragment, each of which used nine bytes."""
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(_rows([0, 1, 2], 0), uri)
    dataset.delete("id = 1")
    here = dataset.snapshot
    claimed = FragmentList.of([replace(here.fragments[0], physical_rows=1 << 28)])
    manifest = render_manifest_file(replace(here.manifest, fragments=claimed), here.indices, None)
    (Path(uri) / here.entry.path).write_bytes(manifest)
    vast, before = lancelet.dataset(uri).snapshot, lancelet.dataset(uri, version=1).snapshot
    tracemalloc.start(1)
    try:
        found = candidates(vast, before)
        assert next(found).offsets[:2].tolist() == [0, 2]
        assert next(found).offsets[0] == 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()

"""Deltas of tables of either implementation are equal."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop


def _history(writer, path: Path):
    """Write a table with every kind of change, and return it."""

    def rows(ids: list[int], text: str) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), "v": [text] * len(ids)})

    dataset = writer.write_dataset(rows([1, 2, 3, 4], "a"), str(path), enable_stable_row_ids=True)
    dataset = writer.write_dataset(rows([5, 6], "b"), str(path), mode="append")
    dataset.update({"v": "'z'"}, where="id = 2")
    dataset.delete("id = 3")
    upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(rows([5, 7], "c"))
    dataset.optimize.compact_files()
    dataset.add_columns({"w": "id * 2"})
    return dataset


def _told(dataset, begin: int) -> list:
    delta = dataset.delta(begin)
    tables = [
        delta.get_inserted_rows().read_all(),
        delta.get_updated_rows().read_all(),
        delta.get_deleted_row_ids().read_all(),
    ]
    by_id = [table.sort_by("_rowid").to_pylist() for table in tables]
    ids = [each.uuid for each in delta.list_transactions()]
    return [[table.schema for table in tables], by_id, ids]


@pytest.mark.parametrize("writer", [lance, lancelet])
def test_both_implementations_return_the_same_delta(tmp_path: Path, writer) -> None:
    dataset = _history(writer, tmp_path / "t.lance")
    ours = lancelet.dataset(str(tmp_path / "t.lance"))
    theirs = lance.dataset(str(tmp_path / "t.lance"))
    for begin in range(dataset.version + 1):
        assert _told(ours, begin) == _told(theirs, begin), begin


@pytest.mark.parametrize("writer", [lance, lancelet])
def test_changes_agree_with_a_comparison_by_key(tmp_path: Path, writer) -> None:
    latest = _history(writer, tmp_path / "t.lance").version - 1
    dataset = lancelet.dataset(str(tmp_path / "t.lance"), latest)
    for begin in range(1, latest):
        by_id = dataset.changes(begin).read_all().sort_by([("_rowid", "ascending")])
        by_key = dataset.changes(begin, on="id").read_all().sort_by([("_rowid", "ascending")])
        assert by_id.to_pylist() == by_key.to_pylist()


def test_every_wrong_question_is_the_same_built_in_error(tmp_path: Path) -> None:
    _history(lance, tmp_path / "t.lance")
    for module in (lance, lancelet):
        dataset = module.dataset(str(tmp_path / "t.lance"))
        for wrong in ({}, {"begin_version": 1}, {"end_version": 1}):
            with pytest.raises(ValueError):  # noqa: PT011 - each side has its own words
                dataset.delta(**wrong)
        with pytest.raises(OverflowError):
            dataset.delta(compared_against=-1)
        with pytest.raises(ValueError):  # noqa: PT011 - each side has its own words
            dataset.delta(begin_version=1, end_version=99).list_transactions()
        with pytest.raises(ValueError):  # noqa: PT011 - each side has its own words
            dataset.delta(begin_version=3, end_version=2).get_deleted_row_ids()

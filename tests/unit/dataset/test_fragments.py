"""Goal: fragments are written, adopted, changed and read on their own as pylance has it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet import LanceDataset, LanceFragment, LanceOperation
from lancelet.file import LanceFileWriter
from lancelet.fragment import write_fragments

ROWS = pa.table({"a": list(range(10)), "b": ["x"] * 10})


@pytest.fixture
def ds(tmp_path: Path) -> LanceDataset:
    return lancelet.write_dataset(ROWS, tmp_path / "t")


def test_a_fragment_of_any_size_is_one_file(tmp_path: Path, ds: LanceDataset) -> None:
    made = LanceFragment.create(ds.uri, ROWS, fragment_id=7)
    assert (made.id, len(made.files), made.physical_rows) == (7, 1, 10)
    assert made.files[0].fields == [0, 1]
    assert LanceFragment.create(tmp_path / "new", ROWS).id == 0
    part = LanceFragment.create(ds.uri, ROWS.select(["b"]))
    assert part.files[0].fields == [1]
    other = LanceFragment.create(ds.uri, pa.table({"q": [1]}), mode="overwrite")
    assert other.files[0].fields == [0]
    with pytest.raises(OSError, match="different schema"):
        LanceFragment.create(ds.uri, pa.table({"q": [1]}))
    with pytest.raises(OSError, match="empty"):
        LanceFragment.create(ds.uri, ROWS.slice(0, 0))
    with pytest.raises(ValueError, match="Invalid mode"):
        LanceFragment.create(ds.uri, ROWS, mode="nope")
    assert lancelet.dataset(ds.uri).version == 1


def test_fragments_to_write_are_cut_like_those_of_a_dataset(ds: LanceDataset) -> None:
    made = write_fragments(ROWS, ds, max_rows_per_file=4)
    assert [(fragment.id, fragment.num_rows) for fragment in made] == [(0, 4), (0, 4), (0, 2)]
    assert write_fragments(ROWS.slice(0, 0), ds) == []
    with pytest.raises(OSError, match="already exists"):
        write_fragments(ROWS, ds, mode="create")


def test_a_file_of_others_becomes_a_fragment(ds: LanceDataset) -> None:
    with LanceFileWriter(f"{ds.uri}/data/mine.lance") as writer:
        writer.write_batch(ROWS)
    made = LanceFragment.create_from_file("mine.lance", ds, 3)
    assert (made.id, made.physical_rows, made.files[0].fields) == (3, 10, [0, 1])
    done = LanceDataset.commit(ds, LanceOperation.Append([made]), read_version=1)
    assert done.to_table() == pa.concat_tables([ROWS, ROWS])
    with pytest.raises(FileNotFoundError):
        LanceFragment.create_from_file("none.lance", ds, 3)


def test_rows_are_deleted_by_predicate_or_offset(ds: LanceDataset) -> None:
    fragment = ds.get_fragment(0)
    assert fragment.delete("a < 3").num_deletions == 3
    assert fragment.delete("a > 100").deletion_file is None
    assert fragment.delete("a >= 0") is None
    assert fragment.delete("true") is None
    assert fragment.delete_rows([1, 1, 2]).num_deletions == 2
    assert fragment.delete_rows([]) == fragment.metadata
    assert fragment.delete_rows(range(10)) is None
    with pytest.raises(ValueError, match="out of range"):
        fragment.delete_rows([10])
    with pytest.raises(OverflowError):
        fragment.delete_rows([-1])
    assert ds.count_rows() == 10
    ds.delete("a in (1, 2)")
    later = ds.get_fragment(0)
    assert later.delete_rows([1]).num_deletions == 2
    assert later.delete_rows([0]).num_deletions == 3
    assert later.take([0, 1])["a"].to_pylist() == [0, 3]


def test_sessions_take_rows(ds: LanceDataset) -> None:
    fragment = ds.get_fragment(0)
    assert fragment.open_session().take([2, 1]) == ROWS.take([2, 1])
    assert fragment.open_session(["b"]).take([0]).to_pydict() == {"b": ["x"]}
    found = fragment.open_session(["a"], with_row_address=True).take([4])
    assert found.to_pydict() == {"a": [4], "_rowaddr": [4]}


def test_arrays_that_crash_pyarrow_are_rejected(ds: LanceDataset) -> None:
    fragment = ds.get_fragment(0)
    for call in (
        lambda: fragment.physical_schema,
        lambda: fragment.partition_expression,
        lambda: ds.partition_expression,
        lambda: ds.replace_schema(ds.schema),
        lambda: ds.scanner().take([1]),
        lambda: ds.scanner().from_dataset(ds),
    ):
        with pytest.raises(NotImplementedError):
            call()

"""Goal: files are written to the bases that are chosen, and read wherever the table moves."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet import DatasetBasePath

ROWS = pa.table({"a": list(range(10))})


def bases_of(ds: lancelet.LanceDataset) -> list[int | None]:
    return [file.base_id for fragment in ds.get_fragments() for file in fragment.data_files()]


@pytest.fixture
def bases(tmp_path: Path) -> list[DatasetBasePath]:
    return [
        DatasetBasePath(str(tmp_path / "hot"), name="hot"),
        DatasetBasePath(tmp_path / "cold", is_dataset_root=True),
        DatasetBasePath(str(tmp_path / "far"), name="far"),
    ]


def test_files_go_to_the_bases_that_are_named(tmp_path: Path, bases) -> None:
    uri = tmp_path / "t"
    ds = lancelet.write_dataset(ROWS, uri, initial_bases=bases, target_bases=["hot"])
    assert [path.suffix for path in (tmp_path / "hot").iterdir()] == [".lance"]
    assert {base_id: base.name for base_id, base in ds.base_paths().items()} == {
        1: "hot",
        2: None,
        3: "far",
    }
    ds.insert(ROWS, target_bases=[str(tmp_path / "cold"), "far"], max_rows_per_file=3)
    assert bases_of(ds) == [1, 2, 3, 2, 3]
    assert len(list((tmp_path / "cold/data").iterdir())) == 2
    ds.insert(ROWS)
    assert bases_of(ds)[-1] is None
    assert ds.to_table()["a"].to_pylist() == list(range(10)) * 3
    ds.delete("a = 3")
    assert ds.count_rows() == 27
    assert lancelet.dataset(uri).to_table(filter="a < 2")["a"].to_pylist() == [0, 1] * 3


@pytest.mark.parametrize(("spread", "expected"), [(True, [None, 1, 2, 3]), (False, [1, 2, 3, 1])])
def test_files_are_spread_over_all_bases(tmp_path: Path, bases, spread, expected) -> None:
    ds = lancelet.write_dataset(
        ROWS, tmp_path / "t", initial_bases=bases, target_all_bases=spread, max_rows_per_file=3
    )
    assert bases_of(ds) == expected
    assert ds.to_table() == ROWS


def test_overwriting_keeps_the_bases(tmp_path: Path, bases) -> None:
    lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=bases)
    ds = lancelet.write_dataset(ROWS, tmp_path / "t", mode="overwrite", target_bases=["far"])
    assert (bases_of(ds), sorted(ds.base_paths())) == ([3], [1, 2, 3])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_only_a_new_dataset_brings_bases_along(tmp_path: Path, bases, mode: str) -> None:
    lancelet.write_dataset(ROWS, tmp_path / "t")
    with pytest.raises(OSError, match="Cannot register new bases in"):
        lancelet.write_dataset(ROWS, tmp_path / "t", mode=mode, initial_bases=bases)


def test_bases_that_are_not_there_are_errors(tmp_path: Path, bases) -> None:
    with pytest.raises(OSError, match="'x' not found in available bases"):
        lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=bases, target_bases=["x"])
    with pytest.raises(OSError, match="together"):
        lancelet.write_dataset(
            ROWS, tmp_path / "t", initial_bases=bases, target_bases=["hot"], target_all_bases=True
        )
    with pytest.raises(TypeError):
        lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=bases, target_bases=[1])
    with pytest.raises(OSError, match="share an id, name or path"):
        lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=[bases[0], bases[0]])
    assert not (tmp_path / "t").exists() or not any((tmp_path / "t").rglob("*.manifest"))


def test_bases_are_added_later(tmp_path: Path, bases) -> None:
    ds = lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=bases[:1])
    assert ds.add_bases(bases[1:]) is ds
    assert (ds.version, sorted(ds.base_paths())) == (2, [1, 2, 3])
    ds.insert(ROWS, target_bases=["far"])
    assert bases_of(ds) == [None, 3]
    with pytest.raises(ValueError, match="registered already"):
        ds.add_bases([DatasetBasePath(str(tmp_path / "other"), name="far")])
    assert ds.checkout_version(1).base_paths().keys() == {1}


def test_a_dataset_moves_by_a_plain_copy_of_its_folder(tmp_path: Path, bases) -> None:
    ds = lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=bases, target_all_bases=True)
    ds.insert(ROWS, target_bases=["hot"])
    ds.delete("a = 0")
    ds.tags.create("v1", 1)
    branch = ds.create_branch("dev")
    branch.insert(ROWS)
    shutil.copytree(tmp_path / "t", tmp_path / "moved")
    expected = ds.to_table()
    lancelet.LanceDataset.drop(ds.uri)
    moved = lancelet.dataset(tmp_path / "moved")
    assert moved.to_table() == expected
    assert moved.checkout_version("v1").to_table() == ROWS
    moved.insert(ROWS)
    assert moved.count_rows() == 28


def test_options_of_a_base_come_from_its_path_or_its_number(tmp_path: Path) -> None:
    from lancelet.format.base_paths import BasePath
    from lancelet.table.location import TableLocation

    options = {"local_sync": "true", "base_1.local_sync": "false", "base_2.x": "y"}
    by_path = {"/far": {"local_sync": "false"}}
    location = TableLocation.open(str(tmp_path), options, by_path)
    wanted = {base.path: location.options_of(base) for base in map(BasePath, (1, 2, 3), "abc")}
    assert wanted == {
        "a": {"local_sync": "false"},
        "b": {"local_sync": "true", "x": "y"},
        "c": {"local_sync": "true"},
    }
    assert location.options_of(BasePath(1, "/far")) == {"local_sync": "false"}

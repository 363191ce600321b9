"""Files, options, progress and messages are compatible with programs for pylance."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.bitmap import Bitmap
from lancelet.log import get_log_level, set_logger
from lancelet.progress import FileSystemFragmentWriteProgress, IndexProgress

ROWS = pa.table({"a": list(range(10))})


def test_files_of_versions_and_files_that_lie_there(tmp_path: Path) -> None:
    base = lancelet.DatasetBasePath(tmp_path / "cold", name="cold")
    ds = lancelet.write_dataset(ROWS, tmp_path / "t", initial_bases=[base])
    ds.insert(ROWS, target_bases=["cold"])
    ds.delete("a = 1")
    (tmp_path / "t/data/stray.lance").write_bytes(b"x")
    told = []
    tracked = ds.tracked_files(progress=lambda *done: told.append(done)).read_all().to_pylist()
    assert told == [(1, 3), (2, 3), (3, 3)]
    kinds = [[row["type"] for row in tracked if row["version"] == n] for n in (1, 2, 3)]
    assert kinds[0] == ["manifest", "transaction file", "data file"]
    assert kinds[2].count("data file") == kinds[2].count("deletion file") == 2
    assert {row["base_uri"] for row in tracked} == {str(tmp_path / "t"), str(tmp_path / "cold")}
    for row in tracked:
        assert (Path(row["base_uri"]) / row["path"]).exists()
    assert len(ds.tracked_files(min_version=3).read_all()) == len(kinds[2])
    lying = {row["path"]: row["size_bytes"] for row in ds.all_files().read_all().to_pylist()}
    named = {row["path"] for row in tracked if row["base_uri"] == ds.uri}
    assert set(lying) - named == {"data/stray.lance", "_versions/latest_version_hint.json"}
    assert lying["data/stray.lance"] == 1


def test_options_and_sessions_are_those_of_the_dataset(tmp_path: Path) -> None:
    options = {"local_sync": "false"}
    ds = lancelet.write_dataset(ROWS, tmp_path / "t", storage_options=options)
    assert ds.initial_storage_options == ds.latest_storage_options() == options
    assert ds.storage_options_accessor is None
    path = ds.get_fragment(0).data_files()[0].path
    assert ds.new_file_session().open_reader(f"data/{path}").num_rows() == 10
    assert lancelet.write_dataset(ROWS, tmp_path / "u").initial_storage_options is None


def test_fragment_ids_are_a_set(tmp_path: Path) -> None:
    ds = lancelet.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=4)
    assert ds.fragment_ids() == {0, 1, 2}
    assert repr(ds.fragment_ids().intersection({2, 0, 7})) == "Bitmap({0, 2})"
    assert isinstance(Bitmap([1]).intersection([1]), Bitmap)


def test_marks_of_progress_go_when_a_fragment_is_complete(tmp_path: Path) -> None:
    seen = []

    class Watching(FileSystemFragmentWriteProgress):
        def complete(self, fragment, **kwargs):
            seen.append(sorted(path.name for path in (tmp_path / "notes").iterdir()))
            super().complete(fragment, **kwargs)

    notes = Watching(tmp_path / "notes", {"worker": "7"})
    lancelet.write_dataset(ROWS, tmp_path / "t", progress=notes, max_rows_per_file=5)
    assert seen[0] == ["fragment_0.in_progress", "fragment_0.json"]
    assert sorted(path.name for path in (tmp_path / "notes").iterdir()) == [
        "fragment_0.json",
        "fragment_1.json",
    ]
    assert json.loads((tmp_path / "notes/fragment_1.json").read_text())["id"] == 1


@pytest.mark.parametrize(
    ("completed", "total", "fraction"),
    [(1, 4, 0.25), (None, 4, None), (1, None, None), (1, 0, None), (5, 4, 1.0)],
)
def test_the_fraction_is_known_or_none(completed, total, fraction) -> None:
    assert IndexProgress("progress", "train", completed, total).fraction == fraction


def test_messages_go_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_logger(str(tmp_path / "a.log"), "lancelet-test", logging.WARNING)
    logger = logging.getLogger("lancelet-test")
    logger.warning("hello")
    logger.info("not this")
    for handler in logger.handlers:
        handler.close()
    text = (tmp_path / "a.log").read_text()
    assert "hello" in text
    assert "not this" not in text
    for value, level in {"": "INFO", "warn": "WARN", "trace": "DEBUG", "a=b": "INFO"}.items():
        monkeypatch.setenv("LANCE_LOG", value)
        assert get_log_level() == level

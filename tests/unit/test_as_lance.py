"""Programs that import `lance` run on lancelet in all their processes."""

import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing
import pickle
import subprocess
import sys

import lance
import lance.file
import lance.lance
import lancelet
from lance import LanceDataset
from lance.dataset import LanceDataset as SameDataset
from lance.optimize import Compaction
from lance_namespace import connect


def seen(uri):
    import lance

    return lance.__version__, lance.dataset(uri).count_rows()


if __name__ == "__main__":
    folder, *rest = sys.argv[1:]
    assert rest == ["--flag", "x"], rest
    assert lance.__version__ == "14.0.2", lance.__version__
    assert LanceDataset is SameDataset is lancelet.LanceDataset
    assert lance.file is lancelet.file and lance.file.__spec__.name == "lancelet.file"
    assert callable(lance.dataset) and lance.dataset is lancelet.dataset
    assert lance.optimize.Compaction is lance.lance.Compaction is Compaction
    dataset = lance.write_dataset([{"a": 1}, {"a": 2}], f"{folder}/t.lance")
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == 2
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(seen, [dataset.uri]) == [("14.0.2", 2)]
    other = "import lance.file, lancelet.file; print(lance.file is lancelet.file)"
    ended = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)
    assert ended.stdout == "True\\n"
    assert type(connect("dir", {"root": folder})).__module__ == "lancelet.namespace.directory"
    print("done")
"""


def run(*arguments, code=0):
    command = [sys.executable, "-W", "ignore", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    return ended


@pytest.mark.parametrize("way", ["file", "module", "import"])
def test_a_program_finds_lancelet_by_the_name_of_lance(way, tmp_path, monkeypatch):
    program = tmp_path / "its_program.py"
    begins = "import lancelet.as_lance\n" if way == "import" else ""
    program.write_text(begins + PROGRAM)
    monkeypatch.chdir(tmp_path)
    start = {
        "file": ["-m", "lancelet.as_lance", str(program)],
        "module": ["-m", "lancelet.as_lance", "-m", "its_program"],
        "import": [str(program)],
    }[way]
    assert run(*start, str(tmp_path), "--flag", "x").stdout == "done\n"


def test_modules_that_are_not_there_are_import_errors():
    program = """
import lancelet.as_lance, lance
for name in ("nope", "file.nope"):
    try:
        __import__(f"lance.{name}")
    except ModuleNotFoundError as error:
        print(error.name)
assert not hasattr(lance, "nope")
lancelet.as_lance.install()
"""
    assert run("-c", program).stdout == "lance.nope\nlance.file.nope\n"


def test_pylance_that_is_loaded_already_is_rejected():
    program = "import lance\nfound = lance.__file__\nimport lancelet.as_lance"
    ended = run("-c", program, code=1)
    assert "PylanceLoadedError: another package called `lance` was imported before" in ended.stderr


def test_without_a_program_there_is_a_usage():
    assert "usage: python -m lancelet.as_lance" in run("-m", "lancelet.as_lance", code=1).stderr
    assert "usage: python -m lancelet.as_lance" in run("-m", "lancelet.as_lance", "-h").stdout


LOADS = """
import sys

import lancelet.as_lance
import datasets
import lance

folder = sys.argv[1]
names = datasets.ClassLabel(names=["cat", "dog"])
rows = datasets.Dataset.from_dict({"id": [1, 2, 3], "label": [0, 1, 0]}).cast_column("label", names)
table = lance.write_dataset(rows, f"{folder}/animals.lance")
assert type(table).__module__.startswith("lancelet.")
for streams in (False, True):
    found = datasets.load_dataset(
        "lance", data_dir=table.uri, split="train", streaming=streams, cache_dir=f"{folder}/cache"
    )
    assert list(found) == [{"id": 1, "label": 0}, {"id": 2, "label": 1}, {"id": 3, "label": 0}]
    assert found.features["label"].names == ["cat", "dog"]
"""


def test_data_sets_of_hugging_face_are_read_by_their_own_module(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run("-c", LOADS, str(tmp_path))

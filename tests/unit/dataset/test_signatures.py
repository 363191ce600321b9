"""The methods that people call have types and documentation in an editor."""

from __future__ import annotations

import inspect
import json
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.scan.builder import SETTERS
from lancelet.errors import InvalidInputError

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests/typing/program.py"


def test_the_program_is_checked_with_the_sources():
    """`make check` runs `mypy --strict` over these."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert "tests/typing" in settings["files"]
    assert settings["strict"]


@pytest.mark.slow
def test_pyright_accepts_the_program(tmp_path):
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent))
    if checker is None:
        pytest.skip("needs the group `check`")
    settings = {
        "include": [str(PROGRAM)],
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [checker, "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_program_runs():
    runpy.run_path(str(PROGRAM))


@pytest.mark.parametrize("method", ["scanner", "to_table", "to_batches", "to_pandas"])
@pytest.mark.parametrize("owner", ["LanceDataset", "LanceFragment"])
def test_scans_have_the_parameters_of_pylance(owner, method):
    theirs = inspect.signature(getattr(getattr(lance, owner), method)).parameters
    function = getattr(getattr(lancelet, owner), method)
    ours = inspect.signature(function).parameters
    by_place = [name for name, each in ours.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    wanted = [name for name, each in theirs.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert by_place[: len(wanted)] == wanted
    for name, each in theirs.items():
        if each.kind is not each.VAR_KEYWORD:
            assert name in ours
    if owner == "LanceDataset" and method != "to_pandas":
        assert [name for name in ours if f" {name}: " not in function.__doc__] == ["self"]


def test_names_of_scan_arguments_are_options_of_a_builder():
    """All but what only pyarrow's datasets use."""
    ignored = {"use_threads", "cache_metadata", "fragment_scan_options", "memory_pool"}
    lists = {"row_addr_allowlist", "row_addr_blocklist"}
    names = inspect.signature(lancelet.LanceDataset.scanner).parameters.keys() - {"self"}
    assert names - ignored - lists <= SETTERS.keys()


def test_an_order_is_names_orderings_or_text():
    rows = pa.table({"a": [2, 1, None, 2], "b": [1, 2, 3, 0], "a desc": [0, 1, 2, 3]})
    dataset = lancelet.write_dataset(rows, "memory://ordered")
    for order, wanted in (
        ("a", [2, 3, 0, 1]),
        ("b desc", [3, 2, 1, 0]),
        ("a desc nulls first, b", [3, 0, 1, 2]),
        (["a desc NULLS FIRST", "b"], [3, 0, 1, 2]),
        ("a desc", [1, 2, 3, 0]),
    ):
        found = dataset.to_table(order_by=order)["b"].to_pylist()
        assert found == wanted or order == "a", order


def test_default_options_have_the_names_of_options():
    lancelet.write_dataset(pa.table({"a": [1]}), "memory://defaults")
    for name in ("_set", "to_scanner", "with_row_ids", "apply_defaults"):
        with pytest.raises(InvalidInputError, match="unknown scan option"):
            lancelet.dataset("memory://defaults", default_scan_options={name: 1}).to_table()
    opened = lancelet.dataset("memory://defaults", default_scan_options={"with_row_id": True})
    assert opened.to_table().column_names == ["a", "_rowid"]


def test_options_of_a_search_without_effect_are_warned_of():
    vectors = pa.array([[0.1, 0.2]], pa.list_(pa.float32(), 2))
    dataset = lancelet.write_dataset(pa.table({"v": vectors}), "memory://searched")
    search = {"column": "v", "q": [0.0, 0.0], "k": 1}
    assert dataset.to_table(nearest=search).num_rows == 1
    for option in ({"approx_mode": "fast"}, {"search_effort": 0.5}, {"query_parallelism": 2}):
        with pytest.warns(UserWarning, match=next(iter(option))):
            assert dataset.to_table(nearest={**search, **option}).num_rows == 1

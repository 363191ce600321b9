"""ARCHITECTURE.md, the invariants and the decision records refer to existing names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
STATEMENTS = (ROOT / "docs" / "invariants.md").read_text()
NAMED_TESTS = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", STATEMENTS)
INVARIANTS = re.split(r"^(?=\d+\. )", STATEMENTS, flags=re.MULTILINE)[1:]
LINES_MAX = 200


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda text: text.split(".")[0])
def test_every_invariant_names_a_test(invariant):
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`", invariant)


@pytest.mark.parametrize(("path", "name"), NAMED_TESTS, ids=lambda part: part)
def test_every_named_test_exists(path, name):
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_invariants_are_numbered():
    numbers = [int(text.split(".")[0]) for text in INVARIANTS]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_map_is_short():
    assert len(TEXT.splitlines()) <= LINES_MAX


def test_every_layer_is_on_the_map():
    folders = {path.parent.name for path in (ROOT / "src" / "lancelet").glob("*/__init__.py")}
    rows = re.findall(r"^\| (`.*?) \|", TEXT.split("Beside them")[0], flags=re.MULTILINE)
    assert folders <= {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs" / "adr" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs" / "adr").glob("0*.md")}
    assert pages == set(re.findall(r"\]\((0.*?\.md)\)", index))

"""Goal: the documentation uses the established terms of the field, each with one meaning.

Messages of errors and warnings, the help of the command line, docstrings of packages that users
import, and the pages. Code in pages and docstrings is left out.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERNAL = {
    "_arrow",
    "_dataset",
    "bitmap.py",
    "buffers.py",
    "cpu.py",
    "encodings",
    "file",
    "format",
    "index",
    "io",
    "kernels",
    "ops",
    "query",
    "rowids",
    "surroundings.py",
    "table",
    "testing",
    "values.py",
}
"""What users do not import: its messages are read, not its docstrings."""

REFUSED = {
    r"whoever": "name who it is",
    r"so many (?:bits|bytes|rows|tokens|values|pieces)": "a number, or the argument's name",
    r"no such (?:word|form|shuffle|change)": "unknown ...",
    r"what there is|is nowhere|from nowhere": "missing, not stored",
    r"unless told|(?:is|are|was) told(?: to| apart| of)": "by default, reports, identifies",
    r"whole numbers?\b(?! of)": "integer",
    r"the most rounds|rounds there are|in the last round\b": "iterations",
    r"into how many pieces|pieces (?:of|a) (?:a )?(?:vector|residual)": "sub-vectors",
    r"words of (?:PQ|each piece)|the word of each": "codewords, codebook",
    r"(?:lists?|dictionar(?:y|ies)|models?) of words": "dictionary, language model",
    r"cut into (?:words|tokens)|cuts? texts?": "tokenize",
    r"rehears\w+": "dry run",
    r"to look at together|are looked at|looked at by": "batch size, search, read",
    r"(?:index|indices) of vectors": "vector index",
    r"(?:is|are|not) sound\b": "valid, OK",
    r"lies? behind|ends behind": "past the end, after",
    r"the other way round": "say both",
    r"<wish>|wishes": "options",
    r"how many (?:rows|vectors|processes|threads) there are": "the number of",
    r"(?:at|by|of) their places|at places\b": "row indices, positions",
    r"makes? something of": "converts",
    r"what makes the dataset": "function",
    r"(?:does|goes) not lie": "outside",
    r"nobody knows": "unknown",
}
"""What is not written, and what says the same."""
PATTERN = re.compile("|".join(f"(?:{each})" for each in REFUSED), re.IGNORECASE)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|^ *>>>.*\n(?: *\S.*\n)*", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(
    r"(?:Error|Warning)$|^(?:warn|exit|print|add_argument|add_parser|ArgumentParser)$"
)


def trees():
    """Each source file, relative to the package, with its syntax tree."""
    package = ROOT / "src" / "lancelet"
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package), ast.parse(path.read_text())


def docstrings(tree, owner=None):
    """The docstrings of what a module makes public."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in [tree] if owner is None else owner.body:
        if isinstance(node, kinds) and not getattr(node, "name", "").startswith("_"):
            yield getattr(node, "name", "module"), ast.get_docstring(node) or ""
            if isinstance(node, ast.Module | ast.ClassDef):
                yield from docstrings(tree, node)


def messages(tree):
    """The texts that a module shows: of errors, of warnings and of the command line."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if not SHOWN.search(name):
            continue
        helps = [each.value for each in node.keywords if each.arg in {"help", "description"}]
        for argument in [*node.args[:2], *helps]:
            for part in ast.walk(argument):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def offences(text):
    return [found[0] for found in PATTERN.finditer(CODE.sub("", text).replace("\n", " "))]


def test_messages_use_the_words_of_the_field():
    found = [
        f"{path}:{line}: {offence}"
        for path, tree in trees()
        if path.parts[0] != "testing"
        for line, text in messages(tree)
        for offence in offences(text)
    ]
    assert found == []


def test_docstrings_use_the_words_of_the_field():
    found = [
        f"{path}: {name}: {offence}"
        for path, tree in trees()
        if path.parts[0] not in INTERNAL
        for name, text in docstrings(tree)
        for offence in offences(text)
    ]
    assert found == []


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "adr" not in page.parts], ids=lambda page: page.stem
)
def test_pages_use_the_words_of_the_field(page):
    assert offences(page.read_text()) == []

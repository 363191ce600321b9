"""Names are plain technical English: no identifier uses a term of the project's old vocabulary."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests/kit")

BANNED_NAMES = frozenset({
    *("Around", "Cutter", "Gap", "Listeners", "Look", "Mark", "Naming", "Pace", "Picks", "Pieces"),
    *("Ranges", "Reading", "ScratchStore", "Slices", "Spans", "Warming", "Way", "WeighedSource"),
    *("ask", "automaton", "expect", "fill_filters", "known", "looked_at", "looks_of", "pieces"),
    *("place", "places", "put_note", "round_rows", "rounds", "seal", "sound", "spread", "tell"),
    *("truth", "turn_rows", "unless_same_keys", "waiting", "while_there", "words"),
})  # fmt: skip
"""Whole identifiers, without leading and trailing underscores."""

BANNED_WORDS = frozenset({
    *("apart", "behind", "beside", "glance", "kept", "lazily", "mend", "rehearsal", "rehearse"),
    *("remarks", "settle", "settled", "stretches", "told", "wanted", "whoever", "wish", "wishes"),
})  # fmt: skip
"""Parts of identifiers in snake case or camel case, in lower case."""

ALLOWED = {
    ("src/lancelet/dataset/blob.py", "tell"): "the method of Python's file objects",
    ("src/lancelet/spark/conversion/streams.py", "tell"): "the method of Python's file objects",
}
"""Justified uses, by file and identifier."""


def identifiers(tree):
    """Yield the names of functions, classes, parameters, attributes, variables and imports."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg() | ast.keyword() if node.arg is not None:
                yield node.lineno, node.arg
            case ast.Attribute():
                yield node.lineno, node.attr
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.MatchAs() | ast.MatchStar() | ast.ExceptHandler() if node.name is not None:
                yield node.lineno, node.name
            case ast.Import() | ast.ImportFrom():
                yield from ((node.lineno, each.asname) for each in node.names if each.asname)


def is_banned(name):
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return name.strip("_") in BANNED_NAMES or any(part.lower() in BANNED_WORDS for part in parts)


def found_in(path):
    relative = path.relative_to(ROOT)
    yield from ((1, part) for part in relative.with_suffix("").parts[1:])
    if path.suffix == ".py":
        yield from identifiers(ast.parse(path.read_text(encoding="utf-8")))


def test_no_identifier_uses_the_old_vocabulary():
    offenders, used = [], set()
    for path in (path for each in FOLDERS for path in sorted((ROOT / each).rglob("*.py"))):
        file = path.relative_to(ROOT).as_posix()
        for line, name in found_in(path):
            if is_banned(name):
                used.add((file, name))
                if (file, name) not in ALLOWED:
                    offenders.append(f"{file}:{line}: {name}")
    assert offenders == []
    assert ALLOWED.keys() <= used, "remove the unused exceptions"


@pytest.mark.parametrize(
    "code",
    [
        "def rows_kept(): ...",
        "class Pieces: ...",
        "def f(*, known): ...",
        "f(known=1)",
        "self._told = 1",
        "place = 1",
        "import a as wishes",
        "match x:\n    case [*words]: ...",
    ],
)
def test_every_kind_of_identifier_is_checked(code):
    assert any(is_banned(name) for _, name in identifiers(ast.parse(code)))


@pytest.mark.parametrize("name", ["stop_words", "machine_words", "updated_in_place", "knownness"])
def test_other_identifiers_are_allowed(name):
    assert not is_banned(name)

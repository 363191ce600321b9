"""Style rules beyond linters, checked in every tracked source file."""

import ast
import re
import subprocess
from functools import cache, partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
GENERATED = re.compile(r"_pb\.py$")


def tracked_files():
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in listing.split("\0") if name]


@cache
def trees():
    """Each source file, relative to src/, with its syntax tree."""
    return [(path.relative_to(ROOT / "src"), ast.parse(path.read_text())) for path in SOURCES]


def imported_tops(tree):
    """The packages that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0], node.lineno


def test_no_other_implementation_is_imported():
    offenders = []
    for path, tree in trees():
        refused = {"lance", "lancedb", "pylance"}
        # The classes of requests are an interface, which every namespace and its callers share.
        if path.parent.name != "namespace" and path.name != "named_table.py":
            refused |= {"lance_namespace", "lance_namespace_urllib3_client"}
        offenders += [f"{path}:{line}" for top, line in imported_tops(tree) if top in refused]
    assert offenders == []


def test_pyspark_is_imported_under_spark_only():
    offenders = [
        f"{path}:{line}"
        for path, tree in trees()
        if path.parts[:2] != ("lancelet", "spark") and path.parts[0] != "pyspark_lance"
        for top, line in imported_tops(tree)
        if top == "pyspark"
    ]
    assert offenders == []


def test_init_modules_hold_imports_and_names_only():
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr, ast.If)
    offenders = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        if path.name == "__init__.py"
        for node in tree.body
        if not isinstance(node, allowed)
    ]
    assert offenders == []


def test_no_broad_except():
    offenders = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = (
                {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
                if node.type
                else {""}
            )
            if names & {"", "Exception", "BaseException"} and not is_told(node):
                offenders.append(f"{path}:{node.lineno}")
    assert offenders == []


def is_told(handler):
    """Whether a handler raises, warns, or keeps the error for who asks: nothing is swallowed."""
    last = handler.body[-1]
    warns = isinstance(last, ast.Expr) and ast.unparse(last).startswith("warnings.warn(")
    return isinstance(last, ast.Raise) or warns or any(map(partial(keeps, handler), handler.body))


def keeps(handler, statement):
    """Whether a statement keeps the very error: in an attribute, or as the outcome of a future."""
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.value) == handler.name
    keepers = (f".set_exception({handler.name})", f"._fail({handler.name})")
    return isinstance(statement, ast.Expr) and ast.unparse(statement).endswith(keepers)


def public_definitions(tree):
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    item
                    for item in node.body
                    if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")
                )


def test_public_names_have_docstrings():
    missing = [
        f"{path}: {node.name}"
        for path, tree in trees()
        if not GENERATED.search(path.name)
        for node in public_definitions(tree)
        if ast.get_docstring(node) is None
        and not any("overload" in ast.unparse(d) for d in node.decorator_list)
    ]
    assert missing == []


def test_nothing_names_a_machine_or_a_registry():
    """No absolute path of a developer's machine and no registry host is in the project."""
    forbidden = re.compile(
        r"/(?:work|farm|root)/[a-z]|pypi\.org|files\.pythonhosted|registry\.npmjs"
    )
    offenders = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.suffix in {".py", ".md", ".toml", ".cpp", ".h", ".txt", ".yml", ".proto", ""}
        and path.is_file()
        and path != Path(__file__)
        and "historical" not in path.parts
        and forbidden.search(path.read_text(errors="ignore"))
    ]
    assert offenders == []


def test_no_built_artefact_is_tracked():
    suffixes = {path.suffix for path in tracked_files()}
    assert not suffixes & {".so", ".pyd", ".whl", ".o", ".a", ".dylib"}


def test_spark_code_never_pushes_filters_or_touches_the_jvm():
    spark = [path for path in SOURCES if "spark" in path.parts]
    for path in spark:
        names = {
            node.attr if isinstance(node, ast.Attribute) else node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute | ast.FunctionDef)
        }
        assert not names & {"pushFilters", "sparkContext", "_jvm", "rdd"}, path


def calls(tree):
    """The calls in a module, with the last part of the name that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            yield name, {word.arg: ast.unparse(word.value) for word in node.keywords}, node.lineno


def test_the_first_release_of_the_oldest_python_is_enough():
    """Filters of archives came with 3.11.4, and no tool looks for what a patch release added."""
    offenders = [
        f"{path}:{line}"
        for path, tree in trees()
        for name, _, line in calls(tree)
        if name in {"extractall", "unpack_archive", "data_filter"}
    ]
    assert offenders == []


def bypasses_of_surroundings(tree):
    """The uses of clocks, randomness and threads that a simulation cannot replace."""
    refused = {
        "time": {"time", "time_ns", "sleep", "monotonic", "monotonic_ns"},
        "datetime": {"now", "utcnow", "today"},
        "date": {"today"},
        "uuid": {"uuid1", "uuid4"},
        "os": {"urandom"},
        "threading": {"Thread", "Timer"},
        "secrets": None,
        "random": None,
    }
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                aliases[each.asname or each.name] = each.name
                words = refused.get(node.module, ())
                if words is None or each.name in words:
                    yield f"{node.lineno} {node.module}.{each.name}"
    types = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign | ast.arg)
        for part in ast.walk(node.annotation or node)
    }
    for node in ast.walk(tree):
        match node:
            case _ if id(node) in types:
                continue
            # Generators with a given seed are reproducible.
            case ast.Attribute(value=ast.Name(id="random"), attr="Random"):
                continue
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in aliases:
                words = refused.get(aliases[name], ())
                if words is None or attr in words:
                    yield f"{node.lineno} {name}.{attr}"
            case ast.Name(id="ThreadPoolExecutor" | "ProcessPoolExecutor" as name):
                yield f"{node.lineno} {name}"
            case ast.Call(func=ast.Attribute(attr="default_rng"), args=[], keywords=[]):
                yield f"{node.lineno} default_rng()"


def test_time_and_chance_come_from_one_place():
    """A simulation replaces `surroundings`; code that asks elsewhere would escape it."""
    # `on_demand` bounds the wait for imports before a fork. `kmeans` seeds PyTorch, not Python.
    exempt = {"surroundings.py", "on_demand.py", "torch/kmeans.py"}
    offenders = [
        f"{path}:{found}"
        for path, tree in trees()
        if path.as_posix().partition("/")[2] not in exempt
        for found in bypasses_of_surroundings(tree)
    ]
    assert offenders == []


def test_bypasses_of_surroundings_are_found():
    program = """
import threading, uuid as ids, numpy as np
from time import monotonic
from concurrent.futures import ThreadPoolExecutor
import random

ids.uuid4()
threading.Thread()
ThreadPoolExecutor()
np.random.default_rng()
random.sample([1], 1)
random.Random(7)
np.random.default_rng(7)
"""
    found = {each.partition(" ")[2] for each in bypasses_of_surroundings(ast.parse(program))}
    assert found == {
        "time.monotonic",
        "ThreadPoolExecutor",
        "default_rng()",
        "ids.uuid4",
        "threading.Thread",
        "random.sample",
    }


def test_no_property_has_a_deadline_in_wall_time():
    """Neither of its own, nor by the check of hypothesis for data that are slow to make."""
    offenders = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name, words, line in calls(ast.parse(path.read_text()))
        if name in {"settings", "register_profile"}
        and (
            words.get("deadline", "None") != "None"
            or "too_slow" not in words.get("suppress_health_check", "too_slow")
        )
    ]
    assert offenders == []

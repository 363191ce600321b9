"""Measure which one-line faults the tests find: `python tools/mutants.py --seconds 600`.

    propose     table/commit.py: `if latest is None:` becomes `if not (latest is None):`
    tests       the tests that call the changed function, fastest first, until one fails
    histories   fixed histories and interleavings of the simulator, until one is violated
    record      a line in tests/mutation/records.jsonl: what found the fault, or that nothing did

Mutants are applied to a copy of `src`, never to the working tree. A record is valid as long as the
code of its function is the same; the others are dropped. A run continues with mutants that have no
record, so the records grow run by run. The order is fixed: one mutant of each function before the
second one of any, and one of each kind before the second one of any.

    --list                  print the proposed mutants
    --sum                   print the score
    --measure [TEST ...]    find out again which functions the tests call
    --survivors             print the mutants that nothing found, and run them again with --again
    --equivalent ID REASON  mark a mutant that no test can find, with the reason
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/lancelet")
RECORDS = ROOT / "tests" / "mutation" / "records.jsonl"
CHOSEN = ROOT / "tests" / "mutation" / "tests.json"
"""The tests of each function that its mutants run, so that a run need not measure all tests."""
CALLS = ROOT / "build" / "mutants" / "calls.json"
"""The functions that each test calls, with its seconds."""

SCOPE = (
    "table/*.py",
    "table/apply/*.py",
    "table/conflict/*.py",
    "table/handlers/base.py",
    "table/handlers/external.py",
    "table/handlers/sqlite.py",
    "change/publish.py",
    "change/rows.py",
    "change/delete.py",
    "change/update.py",
    "change/write.py",
    "change/fragments.py",
    "change/moved_rows.py",
    "change/mem_wal_guard.py",
    "change/columns/*.py",
    "change/merge/execute.py",
    "upkeep/cleanup/*.py",
    "upkeep/compact/*.py",
    "memwal/*.py",
    "spark/stream_*.py",
    "jobs/*.py",
)
"""The files with mutants."""

PROTOCOL = (
    "table/commit.py",
    "table/landed.py",
    "table/removals.py",
    "table/refs.py",
    "table/conflict/",
    "upkeep/cleanup/",
    "memwal/shard.py",
    "memwal/writer.py",
    "memwal/compact.py",
    "memwal/upkeep.py",
    "memwal/state.py",
)
"""The files whose mutants also run against histories if a test already found them."""

TESTS = (
    "tests/unit/table",
    "tests/unit/change",
    "tests/unit/upkeep",
    "tests/unit/ops",
    "tests/unit/memwal",
    "tests/unit/jobs",
    "tests/unit/spark",
    "tests/unit/dataset",
    "tests/unit/kit",
    "tests/faults",
    "tests/stateful",
    "tests/interop/test_refs_interop.py",
    "tests/interop/test_columns_interop.py",
    "tests/interop/test_compact_interop.py",
    "tests/interop/test_mem_wal_interop.py",
)
"""The tests that a mutant may run."""

TESTS_SECONDS = 12.0
"""The time of the tests of a mutant, as measured without it."""
VARIANTS = 4
"""The number of variants of one test that a mutant runs."""
STORED = 16
"""The number of tests of a function that are stored."""
CPU_SECONDS = 150
WALL_SECONDS = 900
"""The time after which a run is ended: a mutant that never returns, or whose threads wait for each
other, is found."""


@dataclass(frozen=True)
class Mutant:
    """A change of one expression or statement of a function."""

    file: str
    function: str
    source: str
    """A hash of the code of the function."""
    kind: str
    before: str
    after: str
    line: int
    start: int
    """The first changed byte."""
    stop: int
    nth: int = 0
    """Counts equal changes within a function."""

    @property
    def id(self) -> str:
        """A short name, which does not depend on the line."""
        said = (self.file, self.function, self.source, self.before, self.after, str(self.nth))
        return hashlib.sha256("\0".join(said).encode()).hexdigest()[:10]


# --- proposals ------------------------------------------------------------------------------------


_COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
}
_KINDS_OF_COMPARISON = {ast.Lt, ast.LtE, ast.Gt, ast.GtE}
_OTHER_VERSION = {
    "read_version": "version",
    "version": "read_version",
    "latest": "base",
    "updated": "created",
    "created": "updated",
}
_LOCKS = ("lock", "condition", "hold", "turn", "claim")
_FLUSHES = ("sync", "flush", "durable")


class _Proposals(ast.NodeVisitor):
    """Collects the mutants of one module."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.data = text.encode()
        self.lines = [0, *itertools.accumulate(len(line) + 1 for line in self.data.split(b"\n"))]
        self.found: list[Mutant] = []
        self._function: tuple[str, str] | None = None
        self._classes: list[str] = []
        self.visit(ast.parse(text))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if self._function is None:
            self._classes.append(node.name)
            for each in node.body:
                self.visit(each)
            self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        is_outer = self._function is None
        if is_outer:
            name = ".".join([*self._classes, node.name])
            self._function = name, source_hash(node)
        self._statements(node.body)
        if is_outer:
            self._function = None

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "put":
            of = self._of(node.func.value)
            if of.endswith("store"):
                self._add("lost flush", node.func, f"{of}.put_best_effort")
        if isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) == 1:
            self._add("missing retry" if _is_attempts(node) else "off by one", node, "range(1)")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        is_check = len(node.body) == 1 and isinstance(node.body[0], ast.Raise)
        if is_check:
            self._add("removed check", node.test, "False")
        if not isinstance(node.test, ast.Compare) or isinstance(
            node.test.ops[0], ast.Is | ast.IsNot
        ):
            self._add("negated condition", node.test, f"not ({self._of(node.test)})")
        self.visit(node.test)
        self._statements(node.body)
        self._statements(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add("negated condition", node, self._of(node.body))
        self._add("negated condition", node, self._of(node.orelse))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for number, value in enumerate(node.values):
            if isinstance(value, ast.Constant):
                continue  # the default of an empty value
            rest = [self._of(each) for at, each in enumerate(node.values) if at != number]
            word = " and " if isinstance(node.op, ast.And) else " or "
            self._add("removed condition", node, f"({word.join(rest)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operator = type(node.ops[0])
        if len(node.ops) == 1 and operator in _COMPARED:
            left, right = self._of(node.left), self._of(node.comparators[0])
            is_bound = operator in _KINDS_OF_COMPARISON
            self._add(
                "widened window" if is_bound else "negated condition",
                node,
                f"{left} {_COMPARED[operator]} {right}",
            )
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        left = self._of(node.left)
        match node.op:
            case ast.Add() | ast.Sub() if _is_one(node.right):
                self._add("off by one", node, f"({left})")
            case ast.Sub() | ast.BitOr() | ast.BitAnd():
                self._add("removed part", node, f"({left})")
            case _:
                pass
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        other = _OTHER_VERSION.get(node.attr)
        if other is not None and isinstance(node.ctx, ast.Load):
            self._add("wrong version", node, f"{self._of(node.value)}.{other}")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._add("removed filter", test, "True")
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Tuple) and "cache" in self._of(node.value).lower():
            self._key(node.slice)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Tuple) and "key" in self._of(node.targets[0]):
            self._key(node.value)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            text = self._of(item.context_expr).lower()
            if item.optional_vars is None and any(word in text for word in _LOCKS):
                nothing = '__import__("contextlib").nullcontext()'
                self._add("removed lock", item.context_expr, nothing)
            self.visit(item.context_expr)
        self._statements(node.body)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._statements(node.body)

    def visit_While(self, node: ast.While) -> None:
        if not (isinstance(node.test, ast.Constant) and node.test.value):
            self._add("negated condition", node.test, "False")
        self.visit(node.test)
        self._statements(node.body)

    def visit_Try(self, node: ast.Try) -> None:
        self._statements(node.body)
        for handler in node.handlers:
            if len(handler.body) == 1 and isinstance(handler.body[0], ast.Return | ast.Continue):
                self._add("missing retry", handler.body[0], "raise")
            self._statements(handler.body)
        self._statements(node.finalbody)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _statements(self, body: list[ast.stmt]) -> None:
        for one, two in itertools.pairwise(body):
            has_effect = isinstance(one, ast.Expr) or isinstance(two, ast.Expr)
            if has_effect and _is_action(one) and _is_action(two) and _may_swap(one, two):
                swapped = f"{self._of(two)}\n{' ' * one.col_offset}{self._of(one)}"
                self._replace("swapped order", one, two, swapped)
        for node in body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                is_flush = any(word in self._of(node.value.func) for word in _FLUSHES)
                self._add("lost flush" if is_flush else "removed statement", node, "pass")
            self.visit(node)

    def _key(self, node: ast.Tuple) -> None:
        for number in range(len(node.elts) if len(node.elts) > 1 else 0):
            rest = [self._of(each) for at, each in enumerate(node.elts) if at != number]
            self._add("stale cache key", node, f"({', '.join(rest)},)")

    def _add(self, kind: str, node: ast.AST, after: str) -> None:
        self._replace(kind, node, node, after)

    def _replace(self, kind: str, first: ast.AST, last: ast.AST, after: str) -> None:
        if self._function is None:
            return
        start, stop = self._at(first)[0], self._at(last)[1]
        before = self.data[start:stop].decode()
        same = [
            each
            for each in self.found
            if (each.function, each.before, each.after) == (self._function[0], before, after)
        ]
        name, source = self._function
        line = first.lineno  # type: ignore[attr-defined] - statements and expressions have one
        self.found.append(
            Mutant(self.file, name, source, kind, before, after, line, start, stop, len(same))
        )

    def _at(self, node: ast.AST) -> tuple[int, int]:
        where: ast.expr = node  # type: ignore[assignment] - statements have the same attributes
        assert where.end_lineno is not None
        assert where.end_col_offset is not None
        start = self.lines[where.lineno - 1] + where.col_offset
        return start, self.lines[where.end_lineno - 1] + where.end_col_offset

    def _of(self, node: ast.AST) -> str:
        start, stop = self._at(node)
        return self.data[start:stop].decode()


def _is_attempts(node: ast.Call) -> bool:
    return any(word in ast.unparse(node) for word in ("attempt", "retr", "ATTEMPTS", "tries"))


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _is_action(node: ast.stmt) -> bool:
    is_call = isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call)
    return is_call and node.lineno == node.end_lineno


def _may_swap(one: ast.stmt, two: ast.stmt) -> bool:
    """Return whether neither statement reads what the other assigns."""

    def names(node: ast.stmt, context: type) -> set[str]:
        return {
            each.id
            for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, context)
        }

    sets = names(one, ast.Store), names(two, ast.Store)
    return not (
        sets[0] & names(two, ast.Load) or sets[1] & names(one, ast.Load) or sets[0] & sets[1]
    )


def source_hash(node: ast.FunctionDef) -> str:
    """Return a hash of the code of a function, which comments and docstrings do not affect."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    code = ast.unparse(ast.Module([*node.decorator_list, node.args, *body], []))  # type: ignore[list-item]
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def proposals(root: Path = ROOT) -> list[Mutant]:
    """Return all mutants in order of execution."""
    files = sorted({path for form in SCOPE for path in (root / PACKAGE).glob(form)})
    found: list[Mutant] = []
    for path in files:
        file = path.relative_to(root / PACKAGE).as_posix()
        found += _Proposals(file, path.read_text()).found
    of_kind: Counter[tuple[str, str, str]] = Counter()
    by_function: dict[tuple[str, str], list[tuple[int, Mutant]]] = defaultdict(list)
    for mutant in sorted(found, key=lambda each: each.id):
        kind = mutant.file, mutant.function, mutant.kind
        by_function[mutant.file, mutant.function].append((of_kind[kind], mutant))
        of_kind[kind] += 1
    ranked = [
        (rank, mutant.id, mutant)
        for them in by_function.values()
        for rank, (_, mutant) in enumerate(sorted(them, key=lambda each: (each[0], each[1].id)))
    ]
    return [mutant for _, _, mutant in sorted(ranked, key=lambda each: each[:2])]


# --- records --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """The result of a mutant.

    `tests` and `histories` are what found it, None if nothing did, or "" if they were not run.
    """

    id: str
    file: str
    function: str
    source: str
    kind: str
    line: int
    before: str
    after: str
    tests: str | None
    histories: str | None
    commit: str
    reason: str | None = None
    """Why the mutant is equivalent to the original."""

    @property
    def is_found(self) -> bool:
        """Whether a test or a history found it."""
        return bool(self.tests or self.histories)


def read_records() -> dict[str, Record]:
    """Return the stored records by the id of the mutant."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return {record.id: record for record in (Record(**json.loads(line)) for line in lines)}


def keep_records(records: Iterable[Record]) -> None:
    """Store records, sorted by file and function."""
    ordered = sorted(records, key=lambda each: (each.file, each.function, each.id))
    lines = "".join(json.dumps(asdict(each)) + "\n" for each in ordered)
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    RECORDS.write_text(lines)


def valid_records(mutants: Iterable[Mutant]) -> dict[str, Record]:
    """Return the records of mutants whose code is the same."""
    proposed = {mutant.id: mutant for mutant in mutants}
    return {
        name: replace(record, line=proposed[name].line)
        for name, record in read_records().items()
        if name in proposed
    }


def is_protocol(file: str) -> bool:
    """Return whether histories should find the faults of a file on their own."""
    return file.startswith(PROTOCOL)


def summary(records: Iterable[Record]) -> dict[str, int]:
    """Return the counts of the documentation."""
    found = list(records)
    real = [each for each in found if each.reason is None]
    protocol = [each for each in real if is_protocol(each.file)]
    return {
        "mutants": len(found),
        "equivalent": len(found) - len(real),
        "killed": sum(each.is_found for each in real),
        "survived": sum(not each.is_found for each in real),
        "protocol": len(protocol),
        "killed_by_histories": sum(bool(each.histories) for each in protocol),
    }


# --- runs -----------------------------------------------------------------------------------------


class Copy:
    """A copy of the sources and tests in which mutants are applied, one at a time."""

    def __init__(self, folder: Path, commit: str | None) -> None:
        self.folder = folder
        if commit is None:
            for name in ("src", "tests", "tools"):
                shutil.copytree(
                    ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            shutil.copy(ROOT / "pyproject.toml", folder)
        else:
            paths = ["src", "tests", "tools", "pyproject.toml"]
            archive = subprocess.run(
                ["git", "archive", commit, *paths], cwd=ROOT, check=True, capture_output=True
            ).stdout
            subprocess.run(["tar", "-x"], cwd=folder, check=True, input=archive)
            for built in (ROOT / PACKAGE / "kernels").glob("*.so"):
                shutil.copy(built, folder / PACKAGE / "kernels")
        self.environment = os.environ | {
            "PYTHONPATH": f"{folder / 'src'}:{folder}",
            "PYTHONHASHSEED": "0",
            "HYPOTHESIS_PROFILE": "ci",
            "CI": "1",
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def tests(self, names: Iterable[str], seconds: int = CPU_SECONDS) -> str | None:
        """Return the first of some tests that fails, or None."""
        options = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "-m", "not slow")
        left = list(names)
        while True:
            said = self._run(["-m", "pytest", *options, *left], seconds)
            if said is None:
                return "does not end"
            # Tests that were renamed since they were measured.
            missing = {name for name in left if f"/{name}\n" in said and "ERROR: not found" in said}
            if not missing:
                break
            left = [name for name in left if name not in missing]
            if not left:
                return None
        failed = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return failed[0].split(" ")[1] if failed else said[-300:] if "passed" not in said else None

    def histories(self, file: str) -> str | None:
        """Return the history or search that finds a violation, or None."""
        said = self._run(["-m", "tests.kit.simulation.sample", file], CPU_SECONDS)
        if said is None:
            return "does not end"
        last = (said.splitlines() or ["it ended"])[-1]
        return None if last == "nothing" else last[:120]

    def apply(self, mutant: Mutant, original: str) -> None:
        """Write the changed file."""
        data = original.encode()
        changed = data[: mutant.start] + mutant.after.encode() + data[mutant.stop :]
        self.write(mutant.file, changed.decode())

    def write(self, file: str, text: str) -> None:
        """Write a file, and remove its compiled form, whose time may be the same."""
        path = self.folder / PACKAGE / file
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def read(self, file: str) -> str:
        """Return the text of a file."""
        return (self.folder / PACKAGE / file).read_text()

    def _run(self, arguments: list[str], seconds: int) -> str | None:
        """Return what a program printed, or None if it did not end in time."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))
        try:
            said, _ = process.communicate(timeout=WALL_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None
        is_over = process.returncode in {-signal.SIGXCPU, -signal.SIGKILL}
        return None if is_over else said


Calls = dict[str, dict[str, object]]


def keep_chosen(calls: Calls) -> None:
    """Store the tests of each function with mutants."""
    functions = {f"{mutant.file}:{mutant.function}": mutant for mutant in proposals()}
    chosen = {
        key: tests_of(mutant, calls, TESTS_SECONDS)[:STORED] for key, mutant in functions.items()
    }
    names = sorted({name for each in chosen.values() for name in each})
    numbers = {name: number for number, name in enumerate(names)}
    by_function = {key: [numbers[name] for name in chosen[key]] for key in sorted(chosen)}
    lines = [json.dumps(names), *(json.dumps([key, each]) for key, each in by_function.items())]
    CHOSEN.write_text("\n".join(lines) + "\n")


def chosen_tests(mutant: Mutant) -> list[str]:
    """Return the stored tests of a function that still exist."""
    names, *lines = map(json.loads, CHOSEN.read_text().splitlines())
    numbers = dict(lines).get(f"{mutant.file}:{mutant.function}", [])
    chosen = [names[number] for number in numbers]
    return [name for name in chosen if (ROOT / name.partition("::")[0]).exists()]


def tests_of(mutant: Mutant, calls: Calls, seconds_max: float) -> list[str]:
    """Return tests that call the function of a mutant: the most specific, and the fastest.

    A test that calls few functions is specific. Few variants of one test are chosen.
    """
    key = f"{mutant.file}:{mutant.function}"
    calling = [
        (float(str(each["seconds"])), len(each["calls"]), name)  # type: ignore[arg-type] - a list
        for name, each in calls.items()
        if key in each["calls"]  # type: ignore[operator] - a list
    ]
    chosen: dict[str, float] = {}
    variants: Counter[str] = Counter()
    for by, budget in ((1, seconds_max / 2), (0, seconds_max)):
        for each in sorted(calling, key=lambda one: one[by]):
            seconds, _, name = each
            function = name.partition("[")[0]
            is_affordable = sum(chosen.values()) + seconds <= budget or not chosen
            if name in chosen or variants[function] == VARIANTS or not is_affordable:
                continue
            chosen[name] = seconds + 0.02
            variants[function] += 1
    return sorted(chosen, key=lambda name: chosen[name])


def measure_calls(jobs: int, paths: Iterable[str] = ()) -> Calls:
    """Run tests, all of them or some paths, and store which functions each of them calls."""
    calls: Calls = json.loads(CALLS.read_text()) if CALLS.exists() else {}
    chosen = [*paths] or [name for name in TESTS if (ROOT / name).exists()]
    CALLS.parent.mkdir(parents=True, exist_ok=True)
    for part in CALLS.parent.glob("calls-*.json"):
        part.unlink()
    environment = os.environ | {
        "LANCELET_RECORDED_CALLS": str(CALLS.parent),
        "PYTHONPATH": str(ROOT / "tools"),
        "HYPOTHESIS_PROFILE": "ci",
        "CI": "1",
    }
    parallel = ("-n", str(jobs), "--dist", "worksteal")
    options = ("-q", "-p", "no:cacheprovider", "-p", "mutants", "-m", "not slow", *parallel)
    print(f"measuring which functions the tests of {len(chosen)} paths call", flush=True)
    command = [sys.executable, "-m", "pytest", *options, *chosen]
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    for part in CALLS.parent.glob("calls-*.json"):
        calls |= json.loads(part.read_text())
        part.unlink()
    CALLS.write_text(json.dumps(calls))
    keep_chosen(calls)
    return calls


def run(mutants: list[Mutant], options: argparse.Namespace) -> dict[str, Record]:
    """Run mutants until the time is up, and return their records."""
    ends = time.monotonic() + options.seconds
    calls: Calls = json.loads(CALLS.read_text()) if CALLS.exists() else {}
    if not calls and not CHOSEN.exists():
        calls = measure_calls(options.jobs)
    found: dict[str, Record] = {}
    turn, lock = iter(mutants), threading.Lock()
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()

    def work(folder: Path) -> None:
        folder.mkdir()
        copy = Copy(folder, options.commit)
        while time.monotonic() < ends:
            with lock:
                mutant = next(turn, None)
            if mutant is None:
                return
            original = copy.read(mutant.file)
            part = original.encode()[mutant.start : mutant.stop].decode()
            if part != mutant.before:
                continue  # the file differs from the working tree
            copy.apply(mutant, original)
            try:
                chosen = tests_of(mutant, calls, options.budget) if calls else chosen_tests(mutant)
                by_test: str | None = ""
                by_history: str | None = ""
                if not options.histories:
                    by_test = copy.tests(chosen) if chosen else None
                if options.histories or (
                    not options.tests and (by_test is None or is_protocol(mutant.file))
                ):
                    by_history = copy.histories(mutant.file)
            finally:
                copy.write(mutant.file, original)
            record = Record(
                mutant.id,
                mutant.file,
                mutant.function,
                mutant.source,
                mutant.kind,
                mutant.line,
                mutant.before,
                mutant.after,
                by_test,
                by_history,
                said,
            )
            with lock:
                found[mutant.id] = record
                told = by_test or by_history or "SURVIVED"
                print(f"{mutant.id} {mutant.file}:{mutant.line} {mutant.kind}: {told}", flush=True)

    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.jobs) as pool:
        folders = [Path(place) / str(number) for number in range(options.jobs)]
        for done in [pool.submit(work, folder) for folder in folders]:
            done.result()
        return _confirmed(found, Path(place) / "original", options.commit)


def _confirmed(found: dict[str, Record], folder: Path, commit: str | None) -> dict[str, Record]:
    """Return the records whose tests pass without the mutant."""
    folder.mkdir()
    copy = Copy(folder, commit)
    names = sorted({each.tests for each in found.values() if each.tests and "::" in each.tests})
    failing = copy.tests(names, 600) if names else None
    while failing in names:
        names.remove(failing)
        found = {name: each for name, each in found.items() if each.tests != failing}
        print(f"fails without mutants, its records are dropped: {failing}")
        failing = copy.tests(names, 600) if names else None
    return found


def show(record: Record) -> str:
    """Return a record as text."""
    before, after = (" ".join(text.split()) for text in (record.before, record.after))
    return (
        f"{record.id} {record.file}:{record.line} {record.function} [{record.kind}]\n"
        f"    {before}\n    {after}"
    )


def main() -> None:
    """Run the requested mutants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument(
        "--budget", type=float, default=TESTS_SECONDS, help="seconds of the tests of a mutant"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--commit", help="a commit to test instead of the working tree")
    parser.add_argument("--only", default="", help="how the files of the mutants begin")
    parser.add_argument("--again", action="store_true", help="run the survivors")
    parser.add_argument("--tests", action="store_true", help="run no histories")
    parser.add_argument(
        "--histories",
        action="store_true",
        help="run histories only, for mutants of the protocol that no history found yet",
    )
    parser.add_argument("--measure", nargs="*", help="tests whose calls are measured again")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sum", action="store_true")
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--equivalent", nargs=2, metavar=("ID", "REASON"))
    options = parser.parse_args()
    mutants = proposals()
    records = valid_records(mutants)
    if options.list:
        for each in mutants:
            print(f"{each.id} {each.file}:{each.line} {each.kind}: {each.before!r}")
        print(len(mutants), "mutants", dict(Counter(each.kind for each in mutants)))
    elif options.measure is not None:
        measure_calls(options.jobs, options.measure)
    elif options.survivors:
        for each in records.values():
            if not each.is_found and each.reason is None:
                print(show(each))
    elif options.equivalent:
        name, reason = options.equivalent
        records[name] = replace(records[name], reason=reason)
        keep_records(records.values())
    elif not options.sum:
        selected = {
            each.id
            for each in mutants
            if _is_selected(each, records.get(each.id), options)
            and each.file.startswith(options.only)
        }
        found = run([each for each in mutants if each.id in selected], options)
        before = valid_records(mutants)
        if options.histories:
            found = {
                name: replace(before[name], histories=record.histories, commit=record.commit)
                for name, record in found.items()
                if name in before
            }
        keep_records((before | found).values())
        records = valid_records(mutants)
    print(json.dumps(summary(records.values())))


def _is_selected(mutant: Mutant, record: Record | None, options: argparse.Namespace) -> bool:
    """Return whether a run includes a mutant."""
    if options.histories or options.again:
        is_missed = record is not None and record.reason is None
        is_missed = is_missed and not (record.histories if options.histories else record.is_found)
        return is_missed and (options.again or is_protocol(mutant.file))
    return record is None


# --- a plugin of pytest that records calls --------------------------------------------------------


_called: set[object] = set()
_results: dict[str, dict[str, object]] = {}
_is_recording = "LANCELET_RECORDED_CALLS" in os.environ


def _trace(frame, event, argument):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
    _called.add(frame.f_code)


def pytest_runtest_setup(item) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    """Begin a test."""
    del item
    if _is_recording:
        _called.clear()
        threading.settrace(_trace)
        sys.settrace(_trace)


def pytest_runtest_logreport(report) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    """Note the calls of a test that passed."""
    if _is_recording and report.when == "call" and "PYTEST_XDIST_WORKER" in os.environ:
        sys.settrace(None)
        if report.passed:
            _results[report.nodeid] = {"seconds": round(report.duration, 3), "calls": _names()}


def pytest_sessionfinish(session) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    """Store the calls."""
    del session
    if _is_recording:
        folder = Path(os.environ["LANCELET_RECORDED_CALLS"])
        (folder / f"calls-{os.getpid()}.json").write_text(json.dumps(_results))


def _names() -> list[str]:
    prefix = f"{ROOT / PACKAGE}/"
    codes = [code for code in _called if code.co_filename.startswith(prefix)]  # type: ignore[attr-defined]
    return sorted(
        {
            f"{code.co_filename.removeprefix(prefix)}:{code.co_qualname.partition('.<locals>')[0]}"  # type: ignore[attr-defined]
            for code in codes
        }
    )


if __name__ == "__main__":
    main()

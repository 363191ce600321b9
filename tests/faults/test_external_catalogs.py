"""Goal: names in external catalogs change as a whole for every failing request.

Method: each request to the catalog, and each request to the files, fails before it is executed,
after it, or is the last one of its process. Afterwards every name has the rows of its table, an
error says whether the operation took effect, and a repeated operation succeeds or says what exists.
"""

import contextlib
import itertools
import json
import subprocess
import sys
import threading

import lance_namespace as ln
import pyarrow as pa
import pytest

import lancelet
from lancelet import surroundings
from lancelet.errors import CommitOutcomeUnknownError, LanceletError
from lancelet.namespace import OutcomeUnknownError
from tests.kit.catalogs import KINDS, RENAMING, ProcessDeathError, RequestFaults, catalog, stream_of
from tests.kit.child import bound_to_us
from tests.kit.faults import FaultySurroundings

FAULTS = ["refuse", "lose_reply", "die_before", "die_after"]
ROWS = pa.table({"id": [1, 2, 3]})
NEW_ROWS = pa.table({"id": [7]})
BEFORE = {"a": [1, 2, 3], "other": [1, 2, 3], "declared": None}
ERRORS = (ln.LanceNamespaceError, LanceletError, OSError)


class Machine(FaultySurroundings):
    """Waits for nothing, and may fail a request to the files."""

    def sleep(self, seconds):
        pass


def create(opened, name="new", mode="create"):
    request = ln.CreateTableRequest(id=opened.path("sales", name), mode=mode)
    opened.namespace.create_table(request, stream_of(NEW_ROWS))


def create_or_use(opened):
    create(opened, mode="exist_ok")


def create_if_missing(opened):
    create(opened, "a", "exist_ok")


def overwrite(opened):
    create(opened, "a", "overwrite")


def create_declared(opened):
    create(opened, "declared")


def declare(opened):
    opened.namespace.declare_table(ln.DeclareTableRequest(id=opened.path("sales", "new")))


def declare_at_location(opened):
    location = str(opened.root / "chosen.lance")
    request = ln.DeclareTableRequest(id=opened.path("sales", "new"), location=location)
    opened.namespace.declare_table(request)


def register(opened):
    location = str(opened.root / "outside.lance")
    request = ln.RegisterTableRequest(id=opened.path("sales", "new"), location=location)
    opened.namespace.register_table(request)


def deregister(opened):
    opened.namespace.deregister_table(ln.DeregisterTableRequest(id=opened.path("sales", "a")))


def drop(opened, name="a"):
    opened.namespace.drop_table(ln.DropTableRequest(id=opened.path("sales", name)))


def drop_declared(opened):
    drop(opened, "declared")


def rename(opened):
    request = ln.RenameTableRequest(id=opened.path("sales", "a"), new_table_name="new")
    opened.namespace.rename_table(request)


def create_namespace(opened):
    request = ln.CreateNamespaceRequest(id=opened.path("more"), properties={"owner": "ann"})
    opened.namespace.create_namespace(request)


def drop_namespace(opened):
    opened.namespace.drop_namespace(ln.DropNamespaceRequest(id=opened.path("empty")))


def without(*names):
    return {name: rows for name, rows in BEFORE.items() if name not in names}


NAMESPACES = ("empty", "sales")
CHANGES = {
    create: {**BEFORE, "new": [7]},
    create_or_use: {**BEFORE, "new": [7]},
    create_if_missing: BEFORE,
    overwrite: {**BEFORE, "a": [7]},
    create_declared: {**BEFORE, "declared": [7]},
    declare: {**BEFORE, "new": None},
    declare_at_location: {**BEFORE, "new": None},
    register: {**BEFORE, "new": [5]},
    deregister: without("a"),
    drop: without("a"),
    drop_declared: without("declared"),
    rename: {**without("a"), "new": [1, 2, 3]},
    create_namespace: BEFORE,
    drop_namespace: BEFORE,
}
NAMESPACES_AFTER = {
    create_namespace: ("empty", "more", "sales"),
    drop_namespace: ("sales",),
}
"""The namespaces after the changes of namespaces."""


def prepare(opened):
    namespace = opened.namespace
    for name in NAMESPACES:
        namespace.create_namespace(ln.CreateNamespaceRequest(id=opened.path(name)))
    for name in ("a", "other"):
        path = opened.path("sales", name)
        namespace.create_table(ln.CreateTableRequest(id=path), stream_of(ROWS))
    namespace.declare_table(ln.DeclareTableRequest(id=opened.path("sales", "declared")))
    lancelet.write_dataset(pa.table({"id": [5]}), str(opened.root / "outside.lance"))


def state_of(opened):
    """Return the namespaces, and the rows of each table by name; None if it is not written."""
    namespace = opened.namespace
    names = namespace.list_tables(ln.ListTablesRequest(id=opened.path("sales"))).tables
    tables, locations = {}, set()
    for name in names:
        request = ln.DescribeTableRequest(id=opened.path("sales", name), check_declared=True)
        found = namespace.describe_table(request)
        locations.add(found.location)
        rows = None
        if not found.is_only_declared:
            rows = lancelet.dataset(found.location).to_table()["id"].to_pylist()
        tables[name] = rows
    assert len(locations) == len(names), "two names have the same files"
    parents = namespace.list_namespaces(ln.ListNamespacesRequest(id=opened.path())).namespaces
    return tuple(name for name in parents if name != "default"), tables


def says_unknown_or_removed(error):
    """Return whether an error says that the operation may have taken effect, and what to do."""
    shown = str(error)
    if isinstance(error, OutcomeUnknownError):
        return "check whether" in shown or "was removed" in shown
    return isinstance(error, CommitOutcomeUnknownError) or "was removed" in shown


def run_with_fault(opened, change, faults, machine):
    """Run a change, and return its error."""
    with surroundings.replaced_by(machine), contextlib.ExitStack() as stack:
        if faults is not None:
            stack.enter_context(faults.of(opened.namespace))
        try:
            change(opened)
        except ERRORS as error:
            return error
        except ProcessDeathError as error:
            return error
    return None


TAKEN = (ln.TableAlreadyExistsError, ln.NamespaceAlreadyExistsError)
GONE = (ln.TableNotFoundError, ln.NamespaceNotFoundError)


def repeat(opened, change, is_done):
    """Run a change again: it succeeds, or says that its result is there."""
    try:
        change(opened)
    except (*TAKEN, *GONE):
        if not is_done:
            raise


def check_change(kind, change, tmp_path, faults_of, machine_of):
    """Run a change with a fault at each request, and check the state after each run."""
    expected = (NAMESPACES_AFTER.get(change, NAMESPACES), CHANGES[change])
    for number in itertools.count():
        with catalog(kind, tmp_path / str(number)) as opened:
            prepare(opened)
            before = state_of(opened)
            assert before == (NAMESPACES, BEFORE)
            faults, machine = faults_of(number), machine_of(number)
            error = run_with_fault(opened, change, faults, machine)
            found = state_of(opened)
            if error is None:
                assert found == expected
            elif isinstance(error, ProcessDeathError) or says_unknown_or_removed(error):
                assert found in (before, expected)
            else:
                assert found == before, error
            if error is not None:
                repeat(opened, change, is_done=found == expected != before)
            assert state_of(opened) == expected
        if not (faults.fired if faults is not None else machine.fired):
            assert error is None
            return number
    return None


def exhaustive(kind, fault):
    """Return a case, marked as slow if it differs from others only by the client."""
    is_slow = kind != "iceberg" and fault != "lose_reply"
    return pytest.param(kind, fault, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize(
    ("kind", "fault"), [exhaustive(kind, fault) for kind in KINDS for fault in FAULTS]
)
def test_a_change_is_whole_or_absent_at_each_request_to_the_catalog(kind, change, fault, tmp_path):
    if change is rename and kind not in RENAMING:
        return
    requests = check_change(
        kind, change, tmp_path, lambda number: RequestFaults(fault, number), lambda _: Machine()
    )
    assert requests >= 1


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", [pytest.param("glue", marks=pytest.mark.slow), "iceberg"])
def test_a_change_is_whole_or_absent_if_the_catalog_stays_away(kind, change, fault, tmp_path):
    if change is rename and kind not in RENAMING:
        return
    check_change(
        kind,
        change,
        tmp_path,
        lambda number: RequestFaults(fault, number, is_lasting=True),
        lambda _: Machine(),
    )


WRITES = [create, create_or_use, overwrite, create_declared, register, drop]


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("change", WRITES, ids=lambda change: change.__name__)
def test_a_change_is_whole_or_absent_at_each_request_to_the_files(change, fault, tmp_path):
    requests = check_change(
        "iceberg", change, tmp_path, lambda _: None, lambda number: Machine(fault, number)
    )
    assert requests >= 1


def outcomes_of(calls):
    """Run calls in threads at the same time, and return the error or None of each."""
    barrier, errors = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number):
        barrier.wait()
        try:
            calls[number]()
        except ln.LanceNamespaceError as error:
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


ROUNDS = 4


def create_with(opened, name, number):
    request = ln.CreateTableRequest(id=opened.path("sales", name))
    rows = pa.table({"id": [number] * (number + 1)})
    opened.namespace.create_table(request, stream_of(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_of_creates_and_drops_at_the_same_time_each_is_whole_or_refused(kind, tmp_path):
    with catalog(kind, tmp_path) as opened:
        prepare(opened)
        for _ in range(ROUNDS):
            calls = [
                *(lambda number=number: create_with(opened, "new", number) for number in range(3)),
                lambda: drop(opened, "new"),
                lambda: drop(opened, "new"),
            ]
            errors = outcomes_of(calls)
            assert any(error is None for error in errors[:3])
            _, tables = state_of(opened)
            rows = tables.pop("new", None)
            assert rows is None or rows == [rows[0]] * (rows[0] + 1)
            is_there = rows is not None
            assert errors[:3].count(None) - errors[3:].count(None) == is_there
            assert all(isinstance(error, TAKEN) for error in errors[:3] if error)
            assert all(isinstance(error, GONE) for error in errors[3:] if error)
            assert tables == BEFORE
            if is_there:
                drop(opened, "new")
        left = sorted(each.name for each in (opened.root).rglob("new_*.lance"))
        assert left == []


@pytest.mark.parametrize("kind", ["iceberg", "hive"])
def test_of_renames_at_the_same_time_one_takes_the_name(kind, tmp_path):
    def renamed(source, target):
        path = opened.path("sales", source)
        opened.namespace.rename_table(ln.RenameTableRequest(id=path, new_table_name=target))

    with catalog(kind, tmp_path) as opened:
        prepare(opened)
        for _ in range(ROUNDS):
            calls = [
                lambda: renamed("a", "new"),
                lambda: renamed("other", "new"),
                lambda: create_with(opened, "new", 3),
            ]
            errors = outcomes_of(calls)
            assert errors.count(None) == 1
            _, tables = state_of(opened)
            assert tables["new"] == ([1, 2, 3] if errors[2] is not None else [3] * 4)
            assert len(tables) == (4 if errors[2] is None else 3)
            if errors[2] is None:
                drop(opened, "new")
            else:
                renamed("new", "a" if errors[0] is None else "other")
            assert state_of(opened)[1] == BEFORE


@pytest.mark.parametrize("kind", ["iceberg", "hive"])
def test_a_table_is_renamed_or_dropped(kind, tmp_path):
    def rename_new():
        path = opened.path("sales", "new")
        opened.namespace.rename_table(ln.RenameTableRequest(id=path, new_table_name="newer"))

    with catalog(kind, tmp_path) as opened:
        prepare(opened)
        for _ in range(ROUNDS):
            create_with(opened, "new", 1)
            errors = outcomes_of([rename_new, lambda: drop(opened, "new")])
            assert errors.count(None) == 1
            _, tables = state_of(opened)
            assert tables == (BEFORE if errors[1] is None else {**BEFORE, "newer": [1, 1]})
            if errors[1] is not None:
                drop(opened, "newer")


@pytest.mark.parametrize("kind", ["unity", "polaris", "iceberg", "hive"])
def test_of_processes_one_creates_a_name(kind, tmp_path):
    with catalog(kind, tmp_path) as opened:
        prepare(opened)
        given = json.dumps([kind, opened.properties, opened.path("sales", "new")])
        command = [sys.executable, "-c", PROGRAM, given]
        children = [
            subprocess.Popen(
                bound_to_us([*command, str(number)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(3)
        ]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        outputs = [child.communicate("go\n")[0].strip() for child in children]
        assert sorted(outputs) == ["TableAlreadyExistsError", "TableAlreadyExistsError", "created"]
        winner = outputs.index("created")
        assert state_of(opened)[1] == {**BEFORE, "new": [winner]}
        assert len(list(opened.root.rglob("new_*.lance"))) == 1


PROGRAM = """
import json, sys
import lance_namespace as ln, pyarrow as pa
from lancelet.namespace import connect
kind, properties, path = json.loads(sys.argv[1])
namespace = connect(kind, properties)
sink = pa.BufferOutputStream()
rows = pa.table({"id": [int(sys.argv[2])]})
with pa.ipc.new_stream(sink, rows.schema) as writer:
    writer.write_table(rows)
print("ready", flush=True)
sys.stdin.readline()
try:
    namespace.create_table(ln.CreateTableRequest(id=path), sink.getvalue().to_pybytes())
    print("created")
except ln.LanceNamespaceError as error:
    print(type(error).__name__)
"""

"""Goal: names in a directory namespace change atomically for every failing request.

Method: each request of an operation is refused once, and once done without a reply. Afterwards
every table has exactly one name and all its rows, and the operation succeeds when it is repeated.
"""

import contextlib
import itertools
import shutil

import lance_namespace as ln
import pyarrow as pa
import pytest

import lancelet
from lancelet import surroundings
from lancelet.errors import CommitError, StorageError
from lancelet.namespace import DirectoryNamespace
from tests.kit.faults import FaultySurroundings

FAULTS = ["refuse", "lose_reply"]
ROWS = pa.table({"a": [1, 2, 3]})
OTHER = pa.table({"a": [9]})


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def namespace_of(root, **properties):
    return DirectoryNamespace(root=root, **{"storage.local_sync": "false"}, **properties)


def tables_of(root):
    """Return the rows of every listed table."""
    namespace = namespace_of(root)
    names = namespace.list_all_tables(ln.ListTablesRequest(id=[])).tables
    found = {}
    for name in names:
        asked = ln.DescribeTableRequest(id=name.split("$"))
        location = namespace.describe_table(asked).location
        found[name] = lancelet.dataset(location).to_table()["a"].to_pylist()
    return found


def prepare(root, written_by):
    """Write the tables `a` and `other`, by the namespace or next to it."""
    namespace = namespace_of(root)
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["ns"]))
    for name, rows in (("a", ROWS), ("other", OTHER)):
        if written_by == "namespace":
            namespace.create_table(ln.CreateTableRequest(id=[name]), stream(rows))
        else:
            lancelet.write_dataset(rows, f"{root}/{name}.lance")


def rename(namespace):
    namespace.rename_table(ln.RenameTableRequest(id=["a"], new_table_name="c"))


def rename_into_namespace(namespace):
    asked = ln.RenameTableRequest(id=["a"], new_table_name="c", new_namespace_id=["ns"])
    namespace.rename_table(asked)


def deregister(namespace):
    namespace.deregister_table(ln.DeregisterTableRequest(id=["a"]))


def drop(namespace):
    namespace.drop_table(ln.DropTableRequest(id=["a"]))


def register(namespace):
    namespace.register_table(ln.RegisterTableRequest(id=["c"], location="a.lance"))


def create(namespace, path=("c",), properties=None):
    asked = ln.CreateTableRequest(id=list(path), properties=properties)
    namespace.create_table(asked, stream(ROWS))


def create_in_namespace(namespace):
    create(namespace, ("ns", "c"))


def create_with_properties(namespace):
    create(namespace, properties={"owner": "ann"})


BEFORE = {"a": [1, 2, 3], "other": [9]}
CHANGES = {
    rename: {"c": [1, 2, 3], "other": [9]},
    rename_into_namespace: {"ns$c": [1, 2, 3], "other": [9]},
    deregister: {"other": [9]},
    drop: {"other": [9]},
    create: {**BEFORE, "c": [1, 2, 3]},
    create_in_namespace: {**BEFORE, "ns$c": [1, 2, 3]},
    create_with_properties: {**BEFORE, "c": [1, 2, 3]},
}
CASES = [
    (change, by)
    for change in CHANGES
    for by in ("namespace", "writer")
    if by == "namespace" or change in {rename, deregister, drop}
]
CASES.append((register, "writer"))
CHANGES[register] = {"c": [1, 2, 3], "other": [9]}
EXHAUSTIVE = {create_in_namespace, create_with_properties}
"""Variants of other changes."""


def is_exhaustive(change, written_by, fault):
    """Whether a case is a variant of others."""
    is_writer = written_by == "writer" and change is not register
    is_lost = fault == "lose_reply" and change in {rename_into_namespace, deregister}
    return is_writer or is_lost or change in EXHAUSTIVE


@pytest.mark.parametrize(
    ("change", "written_by", "fault"),
    [
        pytest.param(
            *case,
            fault,
            id=f"{case[0].__name__}-{case[1]}-{fault}",
            marks=[pytest.mark.slow] if is_exhaustive(*case, fault) else [],
        )
        for case in CASES
        for fault in FAULTS
    ],
)
def test_a_change_of_a_name_is_whole_or_absent_at_every_request(
    tmp_path, change, written_by, fault
):
    after = CHANGES[change]
    prepare(str(tmp_path / "before"), written_by)
    assert tables_of(str(tmp_path / "before")) == BEFORE
    for request in itertools.count():
        root = str(tmp_path / str(request))
        shutil.copytree(tmp_path / "before", root)
        faulty = FaultySurroundings(fault, at=request)
        is_done = False
        with (
            surroundings.replaced_by(faulty),
            contextlib.suppress(StorageError, CommitError),
        ):
            change(namespace_of(root))
            is_done = True
        found = tables_of(root)
        assert found in ((after,) if is_done else (BEFORE, after))
        if not is_done and (found == BEFORE or change is drop):
            change(namespace_of(root))
        assert tables_of(root) == after
        if change is deregister:
            again = ln.RegisterTableRequest(id=["a"], location="a.lance")
            namespace_of(root).register_table(again)
            assert tables_of(root) == BEFORE
        if change is drop:
            assert sorted(each.name for each in (tmp_path / str(request)).iterdir()) == [
                "__manifest",
                "other.lance",
            ]
        if not faulty.fired:
            break
    assert request > 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_drop_without_a_catalog_is_whole_or_absent_at_every_request(tmp_path, fault):
    for request in itertools.count():
        root = str(tmp_path / str(request))
        lancelet.write_dataset(ROWS, f"{root}/a.lance")
        lancelet.write_dataset(OTHER, f"{root}/other.lance")
        faulty = FaultySurroundings(fault, at=request)
        is_done = False
        with surroundings.replaced_by(faulty), contextlib.suppress(StorageError):
            drop(namespace_of(root, manifest_enabled="false"))
            is_done = True
        assert tables_of(root) in (BEFORE, {"other": [9]})
        if not is_done and (tmp_path / str(request) / "a.lance").exists():
            drop(namespace_of(root, manifest_enabled="false"))
        assert [each.name for each in (tmp_path / str(request)).iterdir()] == ["other.lance"]
        if not faulty.fired:
            break
    assert request > 3

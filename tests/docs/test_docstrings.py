"""Goal: `help()` of a public function says what it takes, returns and raises, and its example runs.

Examples find what a reader of the reference finds named on its first page: `lance`, `pa`, `json`,
`dataset` (twenty books in two fragments), `new_books` (a table of two more), `images` (a table of
blobs), `people` (a table with a write-ahead log, which holds one row that is not in the table yet),
`file` (the path of a data file), the classes of `lancelet.file`, and `ScannerBuilder`.
"""

import importlib
import inspect
import json
import re
import textwrap
import uuid
from functools import cache
from types import FunctionType

import pyarrow as pa
import pytest

import lancelet as lance
from lancelet.dataset import ScannerBuilder
from lancelet.file import LanceFileReader, LanceFileSession, LanceFileWriter

MODULES = [
    "lancelet",
    "lancelet.aio",
    "lancelet.arrow",
    "lancelet.blob",
    "lancelet.commit",
    "lancelet.dataset",
    "lancelet.file",
    "lancelet.fragment",
    "lancelet.indices",
    "lancelet.mem_wal",
    "lancelet.namespace",
    "lancelet.optimize",
    "lancelet.otel",
    "lancelet.progress",
    "lancelet.query",
    "lancelet.sampler",
    "lancelet.schema",
    "lancelet.torch",
    "lancelet.tracing",
    "lancelet.training",
    "lancelet.types",
    "lancelet.udf",
    "lancelet.util",
    "lancelet.vector",
]

COMPLETE = [
    "lancelet.LanceDataset",
    "lancelet.LanceFragment",
    "lancelet.LanceScanner",
    "lancelet.MergeInsertBuilder",
    "lancelet.Session",
    "lancelet.dataset.Branches",
    "lancelet.dataset.DatasetDelta",
    "lancelet.dataset.DatasetOptimizer",
    "lancelet.dataset.LanceStats",
    "lancelet.dataset.ScannerBuilder",
    "lancelet.dataset.SqlQuery",
    "lancelet.dataset.SqlQueryBuilder",
    "lancelet.dataset.Tags",
    "lancelet.dataset.VectorIndexReader",
    "lancelet.file.LanceFileReader",
    "lancelet.file.LanceFileSession",
    "lancelet.file.LanceFileWriter",
    "lancelet.file.ReaderResults",
    "lancelet.optimize.Compaction",
    "lancelet.dataset.dataset",
    "lancelet.dataset.write_dataset",
    "lancelet.sql",
    "lancelet.fragment.write_fragments",
]
"""What has arguments, results and errors in every docstring."""

FENCE = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SEE = re.compile(r"[Ss]ee `([\w.]+)`\s+for\s+(?:the|all)\s+(?:other\s+)?arguments")


@cache
def public():
    """Return the public functions and classes, by name, each once."""
    found = {}
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if not (getattr(value, "__module__", None) or "").startswith("lancelet"):
                continue
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            found.setdefault(id(value), (f"{module}.{name}", value))
    for name in COMPLETE:
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        found[id(value)] = (name, value)
    return dict(found.values())


def members(owner):
    """Return what a class of ours makes public: functions and properties by name."""
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        member = getattr(member, "__func__", member)
        is_ours = (getattr(member, "__module__", None) or "").startswith("lancelet")
        if isinstance(member, property):
            is_ours = member.fget.__module__.startswith("lancelet")
        if not name.startswith("_") and is_ours and isinstance(member, FunctionType | property):
            yield name, member


@cache
def functions():
    """Return the public functions and methods by name."""
    found = {}
    for name, value in public().items():
        if inspect.isfunction(value):
            found[name] = value
        else:
            for member, function in members(value):
                if inspect.isfunction(function):
                    found[f"{name}.{member}"] = function
    return found


def is_complete(name):
    return any(name == one or name.startswith(one + ".") for one in COMPLETE)


def documented_arguments(function):
    """Return the names of the arguments that a docstring describes, itself or by reference."""
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n((?: .*\n?|\n)*)", text, re.MULTILINE)
    names = set(re.findall(r"^ {4}\*{0,2}(\w+):", section[1], re.MULTILINE)) if section else set()
    for other in SEE.findall(text):
        names |= set(re.findall(r"`(\w+)`", text))
        full = next(name for name in functions() if name.endswith("." + other))
        names |= documented_arguments(functions()[full])
    return names


def parameters(function):
    return [
        each
        for each in inspect.signature(function).parameters.values()
        if each.name not in {"self", "cls"} and not each.name.startswith("_")
    ]


def missing(name, function):
    """Return what the help of a function lacks."""
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    lacking = [] if text else ["docstring"]
    if not is_complete(name):
        return lacking
    known = documented_arguments(function)
    lacking += [each.name for each in parameters(function) if each.name not in known]
    untyped = [each for each in parameters(function) if each.annotation is each.empty]
    if untyped or signature.return_annotation is signature.empty:
        lacking.append("types")
    returns = signature.return_annotation not in {None, "None", "NoReturn"}
    if returns and not re.search(r"^(Returns|Yields):", text, re.MULTILINE):
        lacking.append("Returns")
    return lacking


def test_every_public_function_documents_arguments_and_results():
    assert {n: m for n, f in functions().items() if (m := missing(n, f))} == {}


def test_every_public_class_and_property_has_a_docstring():
    silent = [name for name, value in public().items() if not inspect.getdoc(value)]
    for name, value in public().items():
        if inspect.isclass(value):
            silent += [f"{name}.{n}" for n, one in members(value) if not inspect.getdoc(one)]
    assert silent == []


def test_described_arguments_are_arguments():
    for name, function in functions().items():
        taken = {each.name for each in parameters(function)}
        text = inspect.getdoc(function) or ""
        if not SEE.search(text):
            assert documented_arguments(function) <= taken, name


def errors_named(function):
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Raises:\n((?: .*\n?|\n)*)", text, re.MULTILINE)
    return re.findall(r"^ {4}(\w+):", section[1], re.MULTILINE) if section else []


def test_errors_that_are_documented_exist():
    errors = importlib.import_module("lancelet.errors")
    builtins = importlib.import_module("builtins")
    for name, function in functions().items():
        for error in errors_named(function):
            assert hasattr(errors, error) or hasattr(builtins, error), (name, error)


def examples():
    """Return the examples of all public functions and classes, each once."""
    found = {
        textwrap.dedent(block): name
        for name, value in reversed({**public(), **functions()}.items())
        for block in FENCE.findall(inspect.getdoc(value) or "")
    }
    return [pytest.param(block, id=name) for block, name in found.items()]


def test_every_method_of_the_main_classes_has_an_example():
    shown = {n for n, f in functions().items() if FENCE.search(inspect.getdoc(f) or "")}
    expected = {name for name in functions() if is_complete(name)}
    lacking = {
        name
        for name in expected - shown
        if not inspect.getdoc(functions()[name]).startswith("Deprecated")
    }
    assert lacking == set()


@pytest.fixture
def books():
    """Return twenty books, in two fragments."""
    ids = list(range(1, 21))
    table = pa.table(
        {
            "id": ids,
            "name": [f"book {number}" for number in ids],
            "price": [number / 2 for number in ids],
            "text": [f"a {'fox' if number % 3 else 'cat'} in chapter {number}" for number in ids],
            "vector": pa.array(
                [[number / 10, 0.2, 0.3, number % 5] for number in ids], pa.list_(pa.float32(), 4)
            ),
        }
    )
    dataset = lance.write_dataset(
        table, "books.lance", max_rows_per_file=10, enable_stable_row_ids=True
    )
    return table, dataset


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("block", examples())
def test_example_runs(block, request):
    table, dataset = request.getfixturevalue("books")
    namespace = {
        "LanceFileReader": LanceFileReader,
        "LanceFileSession": LanceFileSession,
        "LanceFileWriter": LanceFileWriter,
        "ScannerBuilder": ScannerBuilder,
        "dataset": dataset,
        "json": json,
        "lance": lance,
        "new_books": table.slice(0, 2).set_column(0, "id", pa.array([20, 21])),
        "pa": pa,
    }
    if "(file)" in block:
        with LanceFileWriter("table.lance", table.schema) as writer:
            writer.write_batch(table)
        namespace["file"] = "table.lance"
    if "images." in block:
        field = lance.blob_field("image")
        rows = pa.table([lance.blob_array([b"one", b"two"])], schema=pa.schema([field]))
        namespace["images"] = lance.write_dataset(rows, "images.lance", data_storage_version="2.2")
    if "people." in block:
        namespace["people"] = table_with_log()
    exec(compile(block, "<example>", "exec"), namespace)


def table_with_log():
    """Return a table of one row, and of another one in a shard of its write-ahead log."""
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), False, key), pa.field("name", pa.string())])
    people = lance.write_dataset(pa.table({"id": [1], "name": ["Ada"]}, schema), "people.lance")
    people.initialize_mem_wal(bucket_column="id", num_buckets=1)
    with people.mem_wal_writer(str(uuid.uuid4())) as writer:
        writer.put(pa.table({"id": [2], "name": ["Grace"]}, schema))
    return people


def _open_missing_version(dataset):
    lance.dataset(dataset.uri, version=99)


def _tag_twice(dataset):
    dataset.tags.create("a")
    dataset.tags.create("a")


def _clone_onto_itself(dataset):
    dataset.shallow_clone(dataset.uri, 1)


def _write_again(dataset):
    lance.write_dataset({"id": [1]}, dataset.uri)


def _search_without_columns(dataset):
    dataset.create_scalar_index("text", "INVERTED")
    dataset.hybrid_search("fox", [0.0] * 4, columns=["x"])


def _build_twice(dataset):
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("id", "BTREE", replace=False)


RAISED = [
    ("lancelet.LanceDataset.to_table", "FieldNotFoundError", lambda d: d.to_table(["x"])),
    ("lancelet.LanceDataset.to_table", "ExpressionError", lambda d: d.to_table(filter="id >")),
    ("lancelet.LanceDataset.count_rows", "ExpressionError", lambda d: d.count_rows("x = 1")),
    ("lancelet.LanceDataset.take", "IndexError", lambda d: d.take([20])),
    ("lancelet.LanceDataset.take", "FieldNotFoundError", lambda d: d.take([0], ["x"])),
    ("lancelet.LanceDataset.slice", "FieldNotFoundError", lambda d: d.slice(0, 1, ["x"])),
    ("lancelet.LanceDataset.sample", "ValueError", lambda d: d.sample(21)),
    ("lancelet.LanceDataset.filter", "ExpressionError", lambda d: d.filter("id >")),
    ("lancelet.LanceDataset.delta", "InvalidInputError", lambda d: d.delta()),
    ("lancelet.LanceDataset.changes", "VersionNotFoundError", lambda d: d.changes(99).read_all()),
    ("lancelet.LanceDataset.diff", "VersionNotFoundError", lambda d: d.diff(99)),
    ("lancelet.LanceDataset.drop", "DatasetNotFoundError", lambda d: d.drop("no.lance")),
    ("lancelet.dataset.dataset", "DatasetNotFoundError", lambda _: lance.dataset("no.lance")),
    ("lancelet.dataset.dataset", "VersionNotFoundError", _open_missing_version),
    ("lancelet.dataset.write_dataset", "AlreadyExistsError", _write_again),
    ("lancelet.LanceDataset.insert", "SchemaMismatchError", lambda d: d.insert({"id": ["a"]})),
    ("lancelet.LanceDataset.delete", "ExpressionError", lambda d: d.delete("id >")),
    ("lancelet.LanceDataset.update", "ExpressionError", lambda d: d.update({"id": "x +"})),
    ("lancelet.LanceDataset.update", "FieldNotFoundError", lambda d: d.update({"x": "1"})),
    ("lancelet.LanceDataset.merge_insert", "FieldNotFoundError", lambda d: d.merge_insert("x")),
    ("lancelet.LanceDataset.merge_insert", "InvalidInputError", lambda d: d.merge_insert()),
    (
        "lancelet.LanceDataset.add_columns",
        "InvalidInputError",
        lambda d: d.add_columns({"id": "1"}),
    ),
    ("lancelet.LanceDataset.add_columns", "ExpressionError", lambda d: d.add_columns({"z": "x"})),
    (
        "lancelet.LanceDataset.alter_columns",
        "FieldNotFoundError",
        lambda d: d.alter_columns({"path": "x", "name": "y"}),
    ),
    ("lancelet.LanceDataset.drop_columns", "FieldNotFoundError", lambda d: d.drop_columns(["x"])),
    ("lancelet.LanceDataset.merge", "InvalidInputError", lambda d: d.merge({"x": [1]}, "x")),
    (
        "lancelet.LanceDataset.replace_columns",
        "SchemaMismatchError",
        lambda d: d.replace_columns({0: {"price": ["a"] * 10}}),
    ),
    (
        "lancelet.LanceDataset.checkout_version",
        "VersionNotFoundError",
        lambda d: d.checkout_version(9),
    ),
    (
        "lancelet.LanceDataset.checkout_version",
        "RefNotFoundError",
        lambda d: d.checkout_version("x"),
    ),
    (
        "lancelet.LanceDataset.read_transaction",
        "VersionNotFoundError",
        lambda d: d.read_transaction(9),
    ),
    (
        "lancelet.LanceDataset.create_branch",
        "VersionNotFoundError",
        lambda d: d.create_branch("b", 9),
    ),
    ("lancelet.LanceDataset.shallow_clone", "AlreadyExistsError", _clone_onto_itself),
    ("lancelet.LanceDataset.check", "InvalidInputError", lambda d: d.check("deeper")),
    (
        "lancelet.LanceDataset.create_scalar_index",
        "FieldNotFoundError",
        lambda d: d.create_scalar_index("x", "BTREE"),
    ),
    (
        "lancelet.LanceDataset.create_scalar_index",
        "InvalidInputError",
        lambda d: d.create_scalar_index("vector", "BTREE"),
    ),
    ("lancelet.LanceDataset.create_scalar_index", "AlreadyExistsError", _build_twice),
    (
        "lancelet.LanceDataset.create_index",
        "FieldNotFoundError",
        lambda d: d.create_index("x", "IVF_PQ"),
    ),
    (
        "lancelet.LanceDataset.create_index",
        "InvalidInputError",
        lambda d: d.create_index("id", "IVF_PQ"),
    ),
    ("lancelet.LanceDataset.drop_index", "IndexNotFoundError", lambda d: d.drop_index("x")),
    ("lancelet.LanceDataset.prewarm_index", "IndexNotFoundError", lambda d: d.prewarm_index("x")),
    ("lancelet.LanceDataset.get_ivf_model", "NotFoundError", lambda d: d.get_ivf_model("x")),
    (
        "lancelet.LanceDataset.centroids",
        "NotFoundError",
        lambda d: d.centroids(column="vector"),
    ),
    (
        "lancelet.LanceDataset.recall_report",
        "InvalidInputError",
        lambda d: d.recall_report("vector"),
    ),
    ("lancelet.LanceDataset.tune", "FieldNotFoundError", lambda d: d.tune("x")),
    (
        "lancelet.LanceDataset.highlight",
        "InvalidInputError",
        lambda d: d.highlight("a", ["a"], column="text"),
    ),
    (
        "lancelet.LanceDataset.hybrid_search",
        "FieldNotFoundError",
        _search_without_columns,
    ),
    (
        "lancelet.LanceDataset.update_field_metadata",
        "FieldNotFoundError",
        lambda d: d.update_field_metadata({"x": {"a": "b"}}),
    ),
    (
        "lancelet.LanceDataset.update_base_paths",
        "InvalidInputError",
        lambda d: d.update_base_paths({"x": "y"}),
    ),
    (
        "lancelet.LanceDataset.replace_schema",
        "NotImplementedError",
        lambda d: d.replace_schema(d.schema),
    ),
    (
        "lancelet.LanceDataset.take_blobs",
        "FieldNotFoundError",
        lambda d: d.take_blobs("x", indices=[0]),
    ),
    ("lancelet.dataset.Tags.create", "AlreadyExistsError", _tag_twice),
    ("lancelet.dataset.Tags.create", "VersionNotFoundError", lambda d: d.tags.create("a", 9)),
    ("lancelet.dataset.Tags.get_version", "RefNotFoundError", lambda d: d.tags.get_version("x")),
    ("lancelet.dataset.Tags.update", "RefNotFoundError", lambda d: d.tags.update("x")),
    ("lancelet.dataset.Tags.delete", "RefNotFoundError", lambda d: d.tags.delete("x")),
    (
        "lancelet.dataset.Tags.replace_metadata",
        "RefNotFoundError",
        lambda d: d.tags.replace_metadata("x", {}),
    ),
    ("lancelet.dataset.Branches.delete", "RefNotFoundError", lambda d: d.branches.delete("x")),
    (
        "lancelet.dataset.Branches.fast_forward",
        "RefNotFoundError",
        lambda d: d.branches.fast_forward("x"),
    ),
    (
        "lancelet.dataset.DatasetOptimizer.optimize_indices",
        "IndexNotFoundError",
        lambda d: d.optimize.optimize_indices(index_names=["x"]),
    ),
    (
        "lancelet.dataset.LanceStats.column_stats",
        "FieldNotFoundError",
        lambda d: d.stats.column_stats(["x"]),
    ),
    ("lancelet.LanceFragment.take", "IndexError", lambda d: d.get_fragment(0).take([10])),
    (
        "lancelet.LanceFragment.delete",
        "ExpressionError",
        lambda d: d.get_fragment(0).delete("id >"),
    ),
    (
        "lancelet.LanceFragment.delete_rows",
        "InvalidInputError",
        lambda d: d.get_fragment(0).delete_rows([10]),
    ),
    (
        "lancelet.LanceFragment.merge",
        "InvalidInputError",
        lambda d: d.get_fragment(0).merge({"x": [1]}, "x"),
    ),
    (
        "lancelet.dataset.SqlQuery.to_table",
        "ExpressionError",
        lambda d: d.sql("select").build().to_table(),
    ),
    (
        "lancelet.file.LanceFileSession.open_reader",
        "ObjectNotFoundError",
        lambda _: LanceFileSession(".").open_reader("no.lance"),
    ),
    (
        "lancelet.file.LanceFileSession.read_range",
        "ObjectNotFoundError",
        lambda _: LanceFileSession(".").read_range("no.lance", 0, 1),
    ),
    (
        "lancelet.file.LanceFileSession.upload_file",
        "FileNotFoundError",
        lambda _: LanceFileSession(".").upload_file("no", "there"),
    ),
]
"""A way to each error that a docstring names, where one is short."""


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("name", "error", "call"), RAISED, ids=[f"{name}-{error}" for name, error, _ in RAISED]
)
def test_documented_errors_are_raised(name, error, call, books):
    assert error in errors_named(functions()[name])
    kind = getattr(importlib.import_module("lancelet.errors"), error, None) or getattr(
        importlib.import_module("builtins"), error
    )
    with pytest.raises(kind):
        call(books[1])

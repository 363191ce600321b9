"""`lancelet.file` and pylance's `lance.file` side by side: results, batches and error classes."""

import inspect

import lance.file
import numpy as np
import pyarrow as pa
import pytest

import lancelet.file

MODULES = [lancelet.file, lance.file]
ROWS = 5000
pytestmark = pytest.mark.interop


def make_table():
    rows = range(ROWS)
    return pa.table(
        {
            "a": pa.array(rows, pa.int32()),
            "s": pa.array([f"x{row % 7}" for row in rows]),
            "st": pa.array([{"u": row, "v": [row]} for row in rows]),
            "one": pa.array([int.from_bytes(b'\x00\n"\\', "little")] * ROWS, pa.int32()),
        }
    )


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2"])
def files(request, tmp_path_factory):
    """The same table, written by each side, with a global buffer and schema metadata."""
    paths = []
    for module in MODULES:
        path = str(tmp_path_factory.mktemp("f") / "f.lance")
        with module.LanceFileWriter(path, version=request.param) as writer:
            assert writer.add_global_buffer(b"hello") == 1
            writer.write_batch(make_table())
            writer.add_schema_metadata("k", "v")
        paths.append(path)
    return paths


CATCHABLE = (
    ValueError,
    OSError,
    OverflowError,
    NotImplementedError,
    LookupError,
    TypeError,
    RuntimeError,
)


def outcome(work, *arguments):
    """Return the result, or the built-in classes that a caller could catch."""
    try:
        return work(*arguments)
    except CATCHABLE as error:
        return {base for base in CATCHABLE if isinstance(error, base)}


def test_public_names_and_signatures_are_the_reference_s():
    for name in [*lance.file.__all__, "LanceFileSession", "ListResult"]:
        ours, theirs = getattr(lancelet.file, name), getattr(lance.file, name)
        if not inspect.isclass(theirs) or theirs.__module__ == "builtins":
            continue
        for method, function in inspect.getmembers(theirs, inspect.isfunction):
            if method.startswith("_") and method != "__init__":
                continue
            mine = inspect.signature(getattr(ours, method)).parameters
            for parameter in inspect.signature(function).parameters.values():
                if parameter.name.startswith("_") or parameter.kind is parameter.VAR_KEYWORD:
                    continue
                assert parameter.name in mine, (name, method, parameter)
                assert mine[parameter.name].default == parameter.default, (name, method, parameter)


READS = {
    "all": lambda reader: reader.read_all(),
    "range": lambda reader: reader.read_range(4990, 10),
    "empty range": lambda reader: reader.read_range(0, 0),
    "rows": lambda reader: reader.take_rows([0, 7, 4999]),
    "rows of numpy": lambda reader: reader.take_rows(np.array([1, 2])),
    "no rows": lambda reader: reader.take_rows([]),
    "range past the end": lambda reader: reader.read_range(4990, 11),
    "range behind the end": lambda reader: reader.read_range(6000, 1),
    "negative range": lambda reader: reader.read_range(-1, 1),
    "rows twice": lambda reader: reader.take_rows([1, 1]),
    "rows backwards": lambda reader: reader.take_rows([2, 1]),
    "row past the end": lambda reader: reader.take_rows([ROWS]),
    "negative row": lambda reader: reader.take_rows([-1]),
}


@pytest.mark.parametrize("name", READS)
def test_reads_agree_on_files_of_both(files, name):
    for path in files:
        found, expected = (
            outcome(lambda reader: READS[name](reader).to_table(), module.LanceFileReader(path))
            for module in MODULES
        )
        if isinstance(expected, set):
            assert found >= expected
        else:
            assert found.equals(expected)
            assert found.schema.metadata == expected.schema.metadata


@pytest.mark.parametrize("batch_size", [1, 300, 1024, 4999, 5000, 10_000])
def test_batches_have_the_same_sizes(files, batch_size):
    rows = 40 if batch_size == 1 else ROWS
    for path in files:
        found, expected = (
            [
                batch.num_rows
                for batch in module.LanceFileReader(path)
                .read_range(0, rows, batch_size=batch_size)
                .to_batches()
            ]
            for module in MODULES
        )
        assert found == expected


def read_columns(module, path, columns):
    return module.LanceFileReader(path, columns=columns).read_all().to_table()


@pytest.mark.parametrize(
    "columns", [["s", "a"], ["st.u"], ["st.v", "a"], ["a", "a"], ["zz"], [], None]
)
def test_projections_agree(files, columns):
    for path in files:
        found, expected = (outcome(read_columns, module, path, columns) for module in MODULES)
        assert found >= expected if isinstance(expected, set) else found.equals(expected)


def test_metadata_and_statistics_agree(files):
    for path in files:
        ours, theirs = (module.LanceFileReader(path) for module in MODULES)
        mine, other = ours.metadata(), theirs.metadata()
        for name in (
            "major_version",
            "minor_version",
            "num_rows",
            "num_data_bytes",
            "num_column_metadata_bytes",
            "num_global_buffer_bytes",
        ):
            assert getattr(mine, name) == getattr(other, name), name
        assert mine.schema.equals(other.schema, check_metadata=True)
        assert ours.num_rows() == theirs.num_rows() == ROWS
        assert repr(ours.file_statistics()) == repr(theirs.file_statistics())
        places = [
            [
                [[(b.position, b.size) for b in page.buffers] for page in column.pages]
                for column in metadata.columns
            ]
            for metadata in (mine, other)
        ]
        assert places[0] == places[1]
        assert [(b.position, b.size) for b in mine.global_buffers] == [
            (b.position, b.size) for b in other.global_buffers
        ]
        for column, same in zip(mine.columns, other.columns, strict=True):
            for page, twin in zip(column.pages, same.pages, strict=True):
                assert page.encoding.split("{")[0] == twin.encoding.split("{")[0]
        assert repr(mine).splitlines()[:6] == repr(other).splitlines()[:6]
        for index in (1, 9, -1):
            found, expected = (
                outcome(reader.read_global_buffer, index) for reader in (ours, theirs)
            )
            assert found >= expected if isinstance(expected, set) else found == expected


def test_encodings_of_the_reference_read_the_same_in_words(files):
    ours, theirs = (module.LanceFileReader(files[1]).metadata() for module in MODULES)
    mine = [page.encoding for column in ours.columns for page in column.pages]
    other = [page.encoding for column in theirs.columns for page in column.pages]
    assert [line.strip() for text in mine for line in text.splitlines() if "bits_per_value" in line]
    assert mine == other


BROKEN = {
    "missing": None,
    "random": b"x" * 100,
    "short": b"x" * 10,
    "other magic": b"\0" * 60 + b"PAR1",
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_files_raise_the_errors_of_the_reference(tmp_path, name):
    path = tmp_path / "broken.lance"
    if BROKEN[name] is not None:
        path.write_bytes(BROKEN[name])
    found, expected = (outcome(module.LanceFileReader, str(path)) for module in MODULES)
    assert isinstance(expected, set)
    assert found >= expected - {LookupError}


def write_after_close(module, path):
    writer = module.LanceFileWriter(path, pa.schema([("a", pa.int32())]))
    writer.close()
    return writer.close()


def write_twice(module, path, schema, *batches):
    with module.LanceFileWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return module.LanceFileReader(path).read_all().to_table()


INT32 = pa.schema([("a", pa.int32())])
STRICT = pa.schema([pa.field("a", pa.int32(), nullable=False)])


def write_old(module, path):
    with module.LanceFileWriter(path, version="0.1") as writer:
        writer.write_batch(pa.record_batch({"a": [1]}))


WRITES = {
    "closing twice": write_after_close,
    "no schema and no rows": lambda module, path: module.LanceFileWriter(path).close(),
    "no rows": lambda module, path: write_twice(module, path, INT32),
    "another type": lambda module, path: write_twice(
        module, path, INT32, pa.record_batch({"a": pa.array([1])})
    ),
    "another name": lambda module, path: write_twice(
        module, path, INT32, pa.record_batch({"b": pa.array([1], pa.int32())})
    ),
    "a null where none may be": lambda module, path: write_twice(
        module, path, STRICT, pa.record_batch({"a": pa.array([1, None], pa.int32())})
    ),
    "other columns and another order": lambda module, path: write_twice(
        module,
        path,
        pa.schema([("a", pa.int8()), ("b", pa.int8())]),
        pa.record_batch({name: pa.array([1], pa.int8()) for name in "bca"}),
    ),
    "a name twice": lambda module, path: module.LanceFileWriter(
        path, pa.schema([("a", pa.int8()), ("a", pa.int8())])
    ),
    "a name with a dot": lambda module, path: module.LanceFileWriter(
        path, pa.schema([("a.b", pa.int8())])
    ),
    "an unknown version": lambda module, path: module.LanceFileWriter(path, version="2.9"),
    "version 0.1": write_old,
    "an unknown option": lambda module, path: module.LanceFileWriter(path, foo=1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_agree(tmp_path, name):
    found, expected = (
        outcome(WRITES[name], module, str(tmp_path / place))
        for place, module in zip("ab", MODULES, strict=True)
    )
    assert found >= expected if isinstance(expected, set) else found == expected


CALLS = [
    lambda session: session.list(""),
    lambda session: session.list("x"),
    lambda session: session.list("nope"),
    lambda session: vars(session.list_with_delimiter()),
    lambda session: vars(session.list_with_delimiter("x")),
    lambda session: [session.contains(path) for path in ("x/a.lance", "x", "q")],
    lambda session: session.read_range("y/b.bin", 2, 3),
    lambda session: session.read_range("y/b.bin", 2, 0),
    lambda session: session.read_range("y/b.bin", 2, 30),
    lambda session: session.read_range("y/b.bin", -2, 3),
    lambda session: session.read_range("q", 0, 1),
    lambda session: session.open_reader("x/a.lance", ["a"]).read_all().to_table(),
    lambda session: session.open_reader("q"),
    lambda session: session.download_file("q", "/nowhere/none"),
    lambda session: session.upload_file("/nowhere/there", "z"),
    lambda session: session.delete_file("y/b.bin"),
    lambda session: session.delete_file("y/b.bin"),
]


def test_sessions_agree(tmp_path):
    results = []
    for place, module in zip("ab", MODULES, strict=True):
        session = module.LanceFileSession(str(tmp_path / place))
        with session.open_writer("x/a.lance") as writer:
            writer.write_batch(pa.record_batch({"a": [1, 2]}))
        local = tmp_path / "local"
        local.write_bytes(b"12345678")
        session.upload_file(local, "y/b.bin")
        session.download_file("y/b.bin", tmp_path / "down")
        assert (tmp_path / "down").read_bytes() == b"12345678"
        results.append([outcome(call, session) for call in CALLS])
    for number, (found, expected) in enumerate(zip(*results, strict=True)):
        same = found >= expected if isinstance(expected, set) else found == expected
        assert same, (number, found, expected)


def test_blob_writers_agree(tmp_path):
    results = []
    for place, module in zip("ab", MODULES, strict=True):
        session = module.LanceFileSession(str(tmp_path / place))
        packed = session.open_packed_blob_writer("data/abc.lance", 5)
        about = [packed.blob_id, packed.path.split("data/")[1]]
        packed.write_blob(b"hello")
        packed.write_blob(b"")
        packed.write_blobs(pa.array([b"xy", None, b"z"]))
        about.append(outcome(getattr, packed, "field"))
        column = packed.finish_array("col")
        about += [column.to_pylist(), column.type, packed.field, packed.field.metadata]
        other = session.open_packed_blob_writer("data/abc.lance", 6)
        other.write_blob(b"q")
        dedicated = session.open_dedicated_blob_writer("data/abc.lance", 7)
        dedicated.write(b"abc")
        dedicated.write(b"def")
        about += [
            repr(other.finish()),
            repr(dedicated.finish()),
            outcome(packed.finish),
            outcome(other.write_blob, b""),
            outcome(session.open_packed_blob_writer, "data/abc.lance", 0),
            outcome(session.open_packed_blob_writer, "data/abc", 1),
            {path.name: path.read_bytes() for path in (tmp_path / place).rglob("*.blob")},
        ]
        results.append(about)
    for found, expected in zip(*results, strict=True):
        assert found >= expected if isinstance(expected, set) else found == expected

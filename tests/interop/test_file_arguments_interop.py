"""Arguments of the wrong type, and numbers at their limits: refused where the reference refuses.

What it refuses, lancelet refuses with an error that is the same built-in class; what it takes has
the same result. Where they differ on purpose is listed, and nothing else may.
"""

import lance.file
import numpy as np
import pyarrow as pa
import pytest

import lancelet.file

pytestmark = pytest.mark.interop

TABLE = pa.table({"a": pa.array(range(100), pa.int32()), "s": ["x"] * 100})
VALUES = {
    "nothing": None,
    "minus one": -1,
    "zero": 0,
    "two": 2,
    "32 bits": 1 << 32,
    "64 bits": 1 << 64,
    "fraction": 1.5,
    "text": "x",
    "bytes": b"x",
    "numbers": [3],
    "texts": ["a"],
    "mapping": {1: 2},
    "object": object(),
    "table": TABLE,
    "schema": TABLE.schema,
    "numpy": np.int64(3),
}
BUILT_IN = (ValueError, TypeError, OverflowError, OSError, LookupError, NotImplementedError)


def written(module, folder, work, **options):
    """Return what a call of a writer returned, and what was written with it."""
    path = str(folder / "new.lance")
    writer = module.LanceFileWriter(path, **options)
    result = work(writer)
    writer.write_batch(TABLE)
    writer.close()
    table = module.LanceFileReader(path).read_all().to_table()
    return result, table.num_rows, table.schema.metadata


def read(module, folder, **options):
    return module.LanceFileReader(str(folder / "old.lance"), **options)


def session(module, folder):
    return module.LanceFileSession(str(folder))


CALLS = {
    "schema": lambda m, f, x: written(m, f, lambda _: None, schema=x),
    "version": lambda m, f, x: written(m, f, lambda _: None, version=x),
    "data_cache_bytes": lambda m, f, x: written(m, f, lambda _: None, data_cache_bytes=x),
    "max_page_bytes": lambda m, f, x: written(
        m, f, lambda _: None, max_page_bytes=x, version="2.0"
    ),
    "keep_original_array": lambda m, f, x: written(m, f, lambda _: None, keep_original_array=x),
    "storage_options": lambda m, f, x: read(m, f, storage_options=x).num_rows(),
    "columns": lambda m, f, x: read(m, f, columns=x).read_all().to_table(),
    "batch": lambda m, f, x: written(m, f, lambda writer: writer.write_batch(x)),
    "key": lambda m, f, x: written(m, f, lambda writer: writer.add_schema_metadata(x, "v")),
    "value": lambda m, f, x: written(m, f, lambda writer: writer.add_schema_metadata("k", x)),
    "data": lambda m, f, x: written(m, f, lambda writer: writer.add_global_buffer(x)),
    "batch_size": lambda m, f, x: read(m, f).read_all(batch_size=x).to_table(),
    "start": lambda m, f, x: read(m, f).read_range(x, 1).to_table(),
    "num_rows": lambda m, f, x: read(m, f).read_range(0, x).to_table(),
    "indices": lambda m, f, x: read(m, f).take_rows(x).to_table(),
    "index": lambda m, f, x: read(m, f).take_rows([x]).to_table(),
    "global buffer": lambda m, f, x: read(m, f).read_global_buffer(x) and None,
    "path to open": lambda m, f, x: session(m, f).open_reader(x),
    "path to find": lambda m, f, x: session(m, f).contains(x),
    "folder": lambda m, f, x: session(m, f).list(x) and None,
    "path to delete": lambda m, f, x: session(m, f).delete_file(x),
    "offset": lambda m, f, x: len(session(m, f).read_range("old.lance", x, 1)),
    "length": lambda m, f, x: len(session(m, f).read_range("old.lance", 0, x)),
    "path to upload": lambda m, f, x: session(m, f).upload_file(str(f / "old.lance"), x),
    "path to download": lambda m, f, x: session(m, f).download_file(x, str(f / "down")),
    "blob id": lambda m, f, x: (
        session(m, f).open_packed_blob_writer("data/f.lance", x).finish_array("b")
    ),
}
ON_PURPOSE = {
    ("index", "32 bits"): "the reference keeps 32 bits of it, and returns the first row",
    ("batch_size", "zero"): "the reference returns all rows as a table, and none as batches",
    ("data", "numpy"): "what has the buffer protocol is bytes",
}


def outcome(call, module, folder, value):
    """Return a result, or the built-in classes of an error."""
    try:
        return call(module, folder, value)
    except BUILT_IN as error:
        return {kind for kind in BUILT_IN if isinstance(error, kind)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for module in (lancelet.file, lance.file):
        made[module] = tmp_path_factory.mktemp("files")
        with module.LanceFileWriter(str(made[module] / "old.lance"), TABLE.schema) as writer:
            writer.write_batch(TABLE)
    return made


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_rejected_where_the_reference_refuses(name, folders):
    for kind, value in VALUES.items():
        found, expected = (
            outcome(CALLS[name], module, folders[module], value)
            for module in (lancelet.file, lance.file)
        )
        if isinstance(expected, set):
            same = isinstance(found, set) and found >= expected
        else:
            same = found == expected
        assert same == ((name, kind) not in ON_PURPOSE), (kind, found, expected)

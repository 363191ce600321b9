"""Namespaces of each kind, and rows as requests carry them."""

import uuid

import pyarrow as pa
import pytest

from lancelet.namespace import DirectoryNamespace, RestAdapter, RestNamespace

ROWS = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def _stream_of(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def rows():
    return _stream_of(ROWS)


@pytest.fixture
def stream_of():
    return _stream_of


@pytest.fixture(params=["folder", "memory", "server"])
def namespace(request, tmp_path):
    if request.param == "folder":
        yield DirectoryNamespace(root=str(tmp_path))
    elif request.param == "memory":
        yield DirectoryNamespace(root=f"memory://ns{uuid.uuid4().hex}")
    else:
        with RestAdapter("dir", {"root": str(tmp_path)}, port=0) as server:
            yield RestNamespace(**server.client_properties)

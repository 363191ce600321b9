"""Data files in an object store that is slow, fails or crashes.

Whatever the store does, a read gives the rows or a typed error in bounded time, and a write that
fails leaves no object that anybody could open.
"""

import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import StorageUnavailableError
from lancelet.file.open import create_data_file, open_data_file
from lancelet.format.schema import Schema
from lancelet.io import Store, open_folder
from tests.kit.http_server import Answer, ScriptedServer
from tests.kit.s3_server import S3Server

IMPATIENT = {"client_max_retries": "1", "timeout": "1s"}
SECONDS_MAX = 20
ROWS = 400_000
TABLE = pa.table({"x": np.random.default_rng(3).random(ROWS), "n": np.arange(ROWS)})

_numbers = itertools.count()


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server("bucket") as running:
        yield running


@pytest.fixture
def store(server: S3Server) -> Store:
    return open_folder(f"s3://bucket/t{next(_numbers)}", server.storage_options | IMPATIENT)


def start(store: Store):
    return create_data_file(store, "f.lance", Schema.from_arrow(TABLE.schema))


def write(store: Store) -> None:
    writer = start(store)
    writer.write(TABLE)
    writer.finish()


def test_reads_of_a_server_that_dies_end_in_a_typed_error(server, store):
    write(store)
    reader = open_data_file(store, "f.lance")
    (field, _) = reader.schema.fields
    assert reader.read([field], RowIndices(np.array([5])))[0].to_pylist() == [TABLE["x"][5].as_py()]
    server.kill()
    begun = time.monotonic()
    with pytest.raises(StorageUnavailableError) as caught:
        reader.read([field], RowRange(0, ROWS))
    assert "f.lance" in str(caught.value)
    with pytest.raises(StorageUnavailableError):
        open_data_file(store, "f.lance")
    assert time.monotonic() - begun < SECONDS_MAX


def test_reads_wait_for_a_slow_server(server, store):
    write(store)
    reader = open_data_file(store, "f.lance")
    server.pause()
    threading.Timer(0.4, server.resume).start()
    found = reader.read(reader.schema.fields, RowRange(0, ROWS))
    assert pa.table(found, names=["x", "n"]).equals(TABLE.combine_chunks())


def test_a_write_to_a_server_that_hangs_leaves_no_object(server, store):
    writer = start(store)
    server.pause()
    begun = time.monotonic()
    with pytest.raises(StorageUnavailableError):
        write_all(writer)
    writer.abort()
    assert time.monotonic() - begun < SECONDS_MAX
    server.resume()
    assert not list(store.list())


def test_a_write_to_a_server_that_dies_ends_in_a_typed_error(server, store):
    writer = start(store)
    writer.write(TABLE)
    server.kill()
    with pytest.raises(StorageUnavailableError):
        write_all(writer)
    writer.abort()


def write_all(writer) -> None:
    for _ in range(4):
        writer.write(TABLE)
    writer.finish()


def test_refusals_are_tried_again_a_bounded_number_of_times():
    server = ScriptedServer([Answer(503)] * 50)
    options = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_endpoint": server.endpoint,
        "allow_http": "true",
        **IMPATIENT,
    }
    with server, pytest.raises(StorageUnavailableError):
        open_data_file(open_folder("s3://bucket", options), "f.lance")
    assert 1 <= len(server.requests) <= 4

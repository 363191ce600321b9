"""Runs the SQL of the viewer in other processes, which end with the request.

    the page asks      ->  an idle process, or a new one, runs the query
    the page has left  ->  the process is killed; DataFusion cannot stop a query between batches

A process runs one query at a time. Idle ones are kept, because starting one takes a second.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Final

import pyarrow as pa

from lancelet.change.progress import report
from lancelet.cli.table_arguments import open_version
from lancelet.errors import InternalError, LanceletError
from lancelet.values import dataclass

IDLE_MAX: Final = 2
_BATCH_ROWS: Final = 8192
_POLL_SECONDS: Final = 0.1

_IDLE: Final[list[_Worker]] = []
_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Query:
    """The first rows of a statement over a version of a table."""

    uri: str
    at: str | None
    storage_options: Mapping[str, str] | None
    text: str
    limit: int


class _Worker:
    """A process that runs queries, and the connection to it."""

    def __init__(self) -> None:
        # A forked process could not run SQL after its parent did.
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there,), daemon=True)
        self.process.start()
        there.close()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_query(query: Query) -> pa.Table:
    """Return the rows of a query; reports progress, so that the caller can cancel it.

    Raises:
        LanceletError: The error of the query.
        CancelledError: If the caller cancelled it.
    """
    with _LOCK:
        worker = _IDLE.pop() if _IDLE else None
    worker = worker or _Worker()
    try:
        worker.connection.send(query)
        while not worker.connection.poll(_POLL_SECONDS):
            report("sql", 0)
        answer = worker.connection.recv()
    except (EOFError, OSError) as error:
        worker.kill()
        raise InternalError(
            "the process of the query has ended, maybe for lack of memory; return fewer rows"
        ) from error
    except BaseException:
        worker.kill()
        raise
    with _LOCK:
        is_reused = len(_IDLE) < IDLE_MAX
        if is_reused:
            _IDLE.append(worker)
    if not is_reused:
        worker.kill()
    if isinstance(answer, LanceletError):
        raise answer
    return pa.ipc.open_stream(answer).read_all()


def _serve(connection: Connection) -> None:
    """Run queries until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the viewer ends its processes itself
    while True:
        try:
            query = connection.recv()
        except EOFError:
            return
        answer: object
        try:
            answer = _first_rows(query)
        except Exception as error:  # noqa: BLE001 - the edge of the process
            answer = error
        if isinstance(answer, Exception) and not isinstance(answer, LanceletError):
            answer = InternalError(f"{type(answer).__name__}: {answer}")
        connection.send(answer)


def _first_rows(query: Query) -> bytes:
    """Return the first rows of a query in the Arrow stream format."""
    options = None if query.storage_options is None else dict(query.storage_options)
    builder = open_version(query.uri, query.at, options).sql(query.text)
    reader = builder.batch_size(min(query.limit, _BATCH_ROWS)).build().to_stream_reader()
    left = query.limit
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch.slice(0, left))
            left -= min(left, batch.num_rows)
            if not left:
                break
    return bytes(sink.getvalue())

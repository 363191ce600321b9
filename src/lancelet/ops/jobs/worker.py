"""A worker process: an interpreter that reads tasks from its input and writes what came of them.

    to the worker      size, pickle of (function, task)
    from the worker    size, pickle of an outcome or of the error that the task raised

`python -m lancelet.ops.jobs.worker` is that interpreter. It ends when its input does, so no
worker outlives the process that started it. What a task prints goes where errors go.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

from lancelet.errors import CancelledError, LanceletError
from lancelet.ops.jobs.engine import Outcome, run_task

ATTEMPTS: Final = 4
_SIZE_BYTES: Final = 8


class WorkerDiedError(LanceletError, RuntimeError):
    """A worker process ended in the middle of a task, as often as the task was tried."""


class Workers:
    """Worker processes that are started as they are needed and wait for further tasks."""

    def __init__(self) -> None:
        """Start with no process."""
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, code: bytes, task: bytes) -> Outcome:
        """Run a task in a free worker, and in another one if that dies.

        Raises:
            WorkerDiedError: It was tried as often as is sensible.
            CancelledError: The workers were closed.
        """
        for _ in range(ATTEMPTS):
            worker = self._take()
            try:
                found = worker.ask(code, task)
            except (EOFError, BrokenPipeError):
                worker.end()
                continue
            self._idle.put(worker)
            if isinstance(found, BaseException):
                raise found
            return found
        raise WorkerDiedError(
            "worker processes died with a task; is there enough memory?", attempts=ATTEMPTS
        )

    def close(self) -> None:
        """End all workers, in the middle of a task or not."""
        with self._lock:
            self._is_closed = True
            for worker in self._all:
                worker.end()

    def _take(self) -> _Worker:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            if self._is_closed:
                raise CancelledError("the job ended before the task was begun")
            worker = _Worker()
            self._all.append(worker)
        return worker


class _Worker:
    """A process that does one task after another."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def ask(self, code: bytes, task: bytes) -> Outcome | BaseException:
        """Send a task and wait for what comes of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, pickle.dumps((code, task)))
        found: Outcome | BaseException = pickle.loads(_receive(self._process.stdout))  # noqa: S301 - our own process wrote it
        return found

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    """Do tasks until the input ends."""
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints must not come between the answers
    with ThreadPoolExecutor(1) as pool:
        while True:
            try:
                code, task = pickle.loads(_receive(source))  # noqa: S301 - whoever started us wrote it
            except EOFError:
                return
            done = pool.submit(_run, code, task)
            error = done.exception()
            _send(answers, done.result() if error is None else _pickled_error(error))


def _run(code: bytes, task: bytes) -> bytes:
    return pickle.dumps(run_task(pickle.loads(code), pickle.loads(task)))  # noqa: S301 - see above


def _pickled_error(error: BaseException) -> bytes:
    """Return an error as the caller can raise it; not every library's error can be pickled."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - only to see whether it can be
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, ImportError):
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_SIZE_BYTES, "little") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    size = int.from_bytes(_exactly(stream, _SIZE_BYTES), "little")
    return _exactly(stream, size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


if __name__ == "__main__":
    main()

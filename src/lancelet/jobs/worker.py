"""Worker processes, which read tasks from stdin and write outcomes to stdout.

    to the worker      size, pickle of (function, task)
    from the worker    size, pickle of an outcome or of the error that the task raised

The process runs `python -m lancelet.jobs.worker`. It ends at the end of its input, so that it
does not outlive its parent process. The output of tasks is redirected to stderr.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from typing import IO, Final

from lancelet import surroundings
from lancelet.errors import CancelledError, LanceletError
from lancelet.jobs.engine import Outcome, run_task

ATTEMPTS: Final = 4
_SIZE_BYTES: Final = 8


class WorkerDiedError(LanceletError, RuntimeError):
    """Worker processes died during a task in all attempts."""


class Workers:
    """A pool of worker processes, started on demand and reused."""

    def __init__(self) -> None:
        """Start without processes."""
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, code: bytes, task: bytes) -> Outcome:
        """Run a task in an idle worker, and retry it in another if the worker dies.

        Raises:
            WorkerDiedError: The worker died in all attempts.
            CancelledError: The workers were closed.
        """
        for _ in range(ATTEMPTS):
            worker = self._take()
            try:
                outcome = worker.request(code, task)
            except (EOFError, BrokenPipeError):
                worker.kill()
                continue
            self._idle.put(worker)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        raise WorkerDiedError(
            "worker processes died during a task, possibly because of insufficient memory",
            attempts=ATTEMPTS,
        )

    def close(self) -> None:
        """Kill all workers."""
        with self._lock:
            self._is_closed = True
            for worker in self._all:
                worker.kill()

    def _take(self) -> _Worker:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            if self._is_closed:
                raise CancelledError("the job ended before the task was started")
            worker = _Worker()
            self._all.append(worker)
        return worker


class _Worker:
    """A process that runs one task at a time."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def request(self, code: bytes, task: bytes) -> Outcome | BaseException:
        """Send a task and return its outcome."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, pickle.dumps((code, task)))
        outcome: Outcome | BaseException = pickle.loads(_receive(self._process.stdout))  # noqa: S301 - our own process wrote it
        return outcome

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    """Run tasks until the end of the input."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Redirect stdout to stderr, since stdout carries the outcomes.
    with surroundings.executor(1, "lancelet-task") as pool:
        while True:
            try:
                code, task = pickle.loads(_receive(source))  # noqa: S301 - written by the parent process
            except EOFError:
                return
            done = pool.submit(_run, code, task)
            error = done.exception()
            _send(sink, done.result() if error is None else _pickle_error(error))


def _run(code: bytes, task: bytes) -> bytes:
    return pickle.dumps(run_task(pickle.loads(code), pickle.loads(task)))  # noqa: S301 - see above


def _pickle_error(error: BaseException) -> bytes:
    """Return a pickled error, converted to `RuntimeError` if it cannot be pickled."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - verifies that the error can be unpickled
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, ImportError):
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_SIZE_BYTES, "little") + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    size = int.from_bytes(_read_exactly(stream, _SIZE_BYTES), "little")
    return _read_exactly(stream, size)


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


if __name__ == "__main__":
    main()

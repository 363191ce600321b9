"""A Spark driver in a separate process that runs functions for a test.

    with Driver(settings, environment, dumps=cloudpickle.dumps) as driver:
        driver.run(write_rows, uri)             runs write_rows(spark, uri), returns its result
        call = driver.start(write_rows, uri)    the same, without waiting
        driver.finish(call)

A process can have only one classic session, so a second session needs its own process. `settings`
are those of the session; with `spark.api.mode` the driver uses Spark Connect and starts its server.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.kit.child import bound_to_us

_SECONDS_TO_START: Final = 120.0
_SECONDS_TO_RUN: Final = 300.0
_SECONDS_TO_END: Final = 15.0
_PROGRAM: Final = """
import pickle, sys, traceback, warnings
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
settings = pickle.loads(connection.recv_bytes())
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
connection.send_bytes(pickle.dumps((True, None)))
while True:
    try:
        function, arguments = pickle.loads(connection.recv_bytes())
    except EOFError:
        break
    try:
        answer = True, function(session, *arguments)
    except Exception:
        answer = False, traceback.format_exc()
    connection.send_bytes(pickle.dumps(answer))
session.stop()
"""


class DriverError(Exception):
    """A function failed in the driver; the message is its traceback."""


class Driver:
    """A process with a Spark session."""

    def __init__(
        self,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        log: Path,
        dumps: Callable[[Any], bytes] = pickle.dumps,
    ) -> None:
        """Start the process; `dumps` pickles functions, and `log` receives the output."""
        self._dumps = dumps
        self._log = log
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="driver")
        self._connection, other = Pipe()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                bound_to_us([sys.executable, "-c", _PROGRAM, str(other.fileno())]),
                env=dict(environment),
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        other.close()
        self._connection.send_bytes(pickle.dumps(dict(settings)))
        try:
            self._answer(_SECONDS_TO_START)
        except BaseException:
            self.kill()
            raise

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with the session and the arguments, and return its result."""
        return self.finish(self.start(function, *arguments))

    def start(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a call without waiting for its result."""
        self._connection.send_bytes(self._dumps((function, arguments)))
        return self._pool.submit(self._answer, _SECONDS_TO_RUN)

    def finish(self, call: Future[Any]) -> Any:
        """Return the result of a started call."""
        return call.result()

    def kill(self) -> None:
        """Kill the driver and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._pool.shutdown()

    def _answer(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            raise TimeoutError(f"the driver gave no answer: {self._log.read_text()[-4000:]}")
        try:
            is_done, result = pickle.loads(self._connection.recv_bytes())
        except EOFError:
            raise ChildProcessError(f"the driver ended: {self._log.read_text()[-4000:]}") from None
        if not is_done:
            raise DriverError(result)
        return result

    def __enter__(self) -> Self:
        """Return the driver."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Terminate the driver, and kill it if it does not end."""
        if error is None:
            self._connection.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_END)
        self.kill()

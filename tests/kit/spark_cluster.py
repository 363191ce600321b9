"""A standalone Spark cluster on loopback: a master and workers, all of which a test may kill.

    with SparkCluster(folder, environment) as cluster:
        Driver(cluster.master, ...)
        cluster.kill_executor(pid)     the executor above a Python worker, at once
        cluster.kill_worker(0)         a machine is gone, with everything that ran on it
        cluster.add_worker()
        with cluster.connect_server(settings) as address:     sc://127.0.0.1:...

Each worker has an address of its own, since Spark runs no second attempt of a task on the host of
the first. Whatever was started ends with the context, also when its start fails, and with the
process that started it, also when that is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from tests.kit.child import bound_to_us

T = TypeVar("T")

_SECONDS_TO_START: Final = 120.0
_SECONDS_TO_END: Final = 10.0
_POLL_SECONDS: Final = 0.1
# Small heaps and a quick compiler: these processes do nothing but keep books.
_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master and some workers, in processes of their own."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        workers: int = 2,
        cores: int = 2,
        memory_mb: int = 1280,
    ) -> None:
        """Start the cluster; what it writes goes into `folder`."""
        self._folder = folder
        self._cores = cores
        self._memory_mb = memory_mb
        self._environment = {
            **environment,
            "SPARK_HOME": str(spark_home()),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self.master = ""
        try:
            self.master = self._start_master()
            for _ in range(workers):
                self.add_worker()
        except BaseException:
            self.stop()
            raise

    def add_worker(self) -> None:
        """Start another worker, and return when the master knows it."""
        number = len(self._workers)
        host = f"127.0.0.{number + 1}"
        arguments = ["--host", host, "--cores", str(self._cores), "--memory", f"{self._memory_mb}m"]
        arguments += ["--work-dir", str(self._folder / f"work-{number}"), "--webui-port", "0"]
        name = "org.apache.spark.deploy.worker.Worker"
        process, log = self._start(name, host, [*arguments, self.master])
        self._workers.append(process)
        self._wait_for(log, r"Successfully registered with master", process)

    @contextlib.contextmanager
    def connect_server(self, settings: Mapping[str, str]) -> Iterator[str]:
        """Give the address of a server of Spark Connect, which has cores of the cluster inside."""
        name = "org.apache.spark.sql.connect.service.SparkConnectServer"
        own = {
            **settings,
            "spark.master": self.master,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
        options = [word for pair in own.items() for word in ("--conf", "=".join(pair))]
        arguments = ["--class", name, *options, "spark-internal"]
        submit = "org.apache.spark.deploy.SparkSubmit"
        # To Spark's launcher this server is a daemon, whatever its settings say.
        memory = {"SPARK_DAEMON_MEMORY": settings.get("spark.driver.memory", "1g")}
        process, log = self._start(submit, "127.0.0.1", arguments, memory)
        try:
            found = self._wait_for(log, r"Connect server started at: \S*?:(\d+)", process)
            yield f"sc://127.0.0.1:{found[1]}"
        finally:
            _end([process])

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors at once, as if their machine had lost its power."""
        _kill_group(self._workers[number])

    def kill_executor(self, pid: int) -> int:
        """End the executor above a process at once, and return its number."""
        for parent, command in ancestors(pid):
            if _EXECUTOR in command:
                os.kill(parent, signal.SIGKILL)
                return parent
        raise ProcessLookupError(f"process {pid} is not beneath an executor")

    def executors(self) -> list[int]:
        """Return the numbers of the processes that are executors of this cluster."""
        known = {process.pid for process in self._workers}
        return [
            pid
            for pid, (parent, command) in _processes().items()
            if parent in known and _EXECUTOR in command
        ]

    def stop(self) -> None:
        """End everything that was started."""
        _end(self._processes)

    def _start_master(self) -> str:
        name = "org.apache.spark.deploy.master.Master"
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        process, log = self._start(name, "127.0.0.1", arguments)
        found = self._wait_for(log, r"Starting Spark master at (spark://\S+)", process)
        return found[1]

    def _start(
        self,
        name: str,
        host: str,
        arguments: list[str],
        environment: Mapping[str, str] | None = None,
    ) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._folder / f"process-{len(self._processes)}.log"
        command = [str(spark_home() / "bin" / "spark-class"), name, *arguments]
        own = self._environment | {"SPARK_LOCAL_IP": host} | dict(environment or {})
        with log.open("wb") as output:
            # A group of its own, so that a worker can be killed with its executors.
            process = subprocess.Popen(
                bound_to_us(command),
                env=own,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process, log

    def _wait_for(self, log: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            if process.poll() is not None:
                raise ChildProcessError(f"a process ended at its start: {log.read_text()[-4000:]}")
            return re.search(pattern, log.read_text(errors="replace"))

        return wait_until(found, seconds=_SECONDS_TO_START)

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the cluster."""
        self.stop()


def spark_home() -> Path:
    """Return the folder of the installed package, which is a whole Spark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def wait_until(look: Callable[[], T | None], *, seconds: float) -> T:
    """Return what a function finds, as soon as it finds anything."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"nothing happened in {seconds} seconds")


def ancestors(pid: int) -> list[tuple[int, str]]:
    """Return the number and the command of each process above one, the nearest first."""
    known, found = _processes(), []
    while pid in known:
        pid = known[pid][0]
        if pid in known:
            found.append((pid, known[pid][1]))
    return found


def descendants(pid: int) -> list[tuple[int, str]]:
    """Return the number and the command of each process below one."""
    known = _processes()
    found: list[tuple[int, str]] = []
    above = {pid}
    while above:
        below = {each for each, (parent, _) in known.items() if parent in above}
        found += [(each, known[each][1]) for each in sorted(below)]
        above = below
    return found


def _processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the command of every process."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = (line.split(None, 2) for line in listing.splitlines())
    return {int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3}


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes, kindly if they let us."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _SECONDS_TO_END
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

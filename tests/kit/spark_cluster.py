"""A standalone Spark cluster on loopback: a master and workers that a test can kill.

    with SparkCluster(folder, environment) as cluster:
        Driver(cluster.master, ...)
        cluster.kill_executor(pid)     kills the executor of a Python worker
        cluster.kill_worker(0)         kills a worker and its executors, like a machine failure
        cluster.add_worker()
        with cluster.connect_server(settings) as address:     sc://127.0.0.1:...

Each worker has its own address, because Spark does not retry a task on the host of the first
attempt. All processes end with the context, also if its start fails, and with the process that
started them, also if that is killed.
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
# Small heaps and fast compilation, as these processes do little work.
_JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master and workers in separate processes."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        workers: int = 2,
        cores: int = 2,
        memory_mb: int = 1280,
    ) -> None:
        """Start the cluster, with its files in `folder`."""
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
        """Start another worker and wait until it is registered."""
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
        """Run a Spark Connect server on the cluster and yield its address."""
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
        # Spark's launcher always runs this server as a daemon.
        memory = {"SPARK_DAEMON_MEMORY": settings.get("spark.driver.memory", "1g")}
        process, log = self._start(submit, "127.0.0.1", arguments, memory)
        try:
            found = self._wait_for(log, r"Connect server started at: \S*?:(\d+)", process)
            yield f"sc://127.0.0.1:{found[1]}"
        finally:
            _end([process])

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, like a power failure of their machine."""
        _kill_group(self._workers[number])

    def kill_executor(self, pid: int) -> int:
        """Kill the executor that is an ancestor of a process, and return its process id."""
        for parent, command in ancestors(pid):
            if _EXECUTOR in command:
                os.kill(parent, signal.SIGKILL)
                return parent
        raise ProcessLookupError(f"process {pid} is not beneath an executor")

    def executors(self) -> list[int]:
        """Return the process ids of the executors of this cluster."""
        worker_pids = {process.pid for process in self._workers}
        return [
            pid
            for pid, (parent, command) in _processes().items()
            if parent in worker_pids and _EXECUTOR in command
        ]

    def stop(self) -> None:
        """Stop all processes."""
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
            # A process group per worker, so it can be killed with its executors.
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
        """Stop the cluster."""
        self.stop()


def spark_home() -> Path:
    """Return the Spark installation in the `pyspark` package."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def wait_until(find: Callable[[], T | None], *, seconds: float) -> T:
    """Poll a function and return its first result that is not None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(_POLL_SECONDS)
    raise TimeoutError(f"no result after {seconds} seconds")


def ancestors(pid: int) -> list[tuple[int, str]]:
    """Return the process id and command of each ancestor of a process, nearest first."""
    processes, found = _processes(), []
    while pid in processes:
        pid = processes[pid][0]
        if pid in processes:
            found.append((pid, processes[pid][1]))
    return found


def descendants(pid: int) -> list[tuple[int, str]]:
    """Return the process id and command of each descendant of a process."""
    processes = _processes()
    found: list[tuple[int, str]] = []
    above = {pid}
    while above:
        below = {each for each, (parent, _) in processes.items() if parent in above}
        found += [(each, processes[each][1]) for each in sorted(below)]
        above = below
    return found


def _processes() -> dict[int, tuple[int, str]]:
    """Return the parent and command of every process."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,command="]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = (line.split(None, 2) for line in listing.splitlines())
    return {int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3}


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate processes, and kill those that do not end."""
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

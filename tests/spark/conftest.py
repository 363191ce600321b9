"""One Spark session for all tests of a process: classic, or Connect if set by the environment.

A test that waits for Spark without an end would stop all others, so each has an end: an alarm
raises in the middle of its wait. Where even that is not heard, the JVM goes too.
"""

import contextlib
import os
import signal
import sys
import threading
import warnings
from pathlib import Path

import pytest

MODE = os.environ.get("LANCELET_SPARK_MODE", "classic")
SECONDS_PER_TEST = 600
SECONDS_TO_HEAR = 60
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A JVM that lives for minutes is done before its best compiler is.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Workers that need not import everything anew; those of the cluster's tests do.
    "spark.python.daemon.module": "lancelet.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Releases before 4.3 leave the closing of sockets to the garbage collector.
            for kind in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:.*socket:{kind}"))
            # Spark looks for pandas where it uses none, and then at its release.
            ignored = "ignore:PySpark does not yet fully support pandas:FutureWarning"
            item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(autouse=True)
def _an_end(request):
    """Fail a test that takes too long, wherever it waits."""
    limit = SECONDS_PER_TEST * (2 if request.node.get_closest_marker("slow") else 1)
    with ended(limit):
        yield


@contextlib.contextmanager
def ended(seconds):
    """Raise in the main thread when time is over; end the JVM if that changes nothing."""

    def ring(number, frame):
        raise TimeoutError(f"a test of Spark did not end in {seconds} s")

    last_resort = threading.Timer(seconds + SECONDS_TO_HEAR, end_java)
    last_resort.daemon = True
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last_resort.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last_resort.cancel()


def end_java():
    """End the JVM of this process, so that whoever waits for it is told."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    source = str(Path(__file__).resolve().parents[2] / "src")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark starts many short-lived interpreters; let them share what they compile.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(tmp_path_factory.mktemp("bytecode"))
    builder = SparkSession.builder.appName("lancelet")
    home = tmp_path_factory.mktemp("spark")
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    builder = builder.remote("local[2,2]") if MODE == "connect" else builder.master("local[2,2]")
    with warnings.catch_warnings():
        # Starting the JVM forks, which libraries that hold threads warn about.
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    yield session
    with ended(SECONDS_TO_HEAR):
        session.stop()

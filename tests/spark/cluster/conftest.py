"""A standalone cluster and an S3 server on loopback, and drivers in processes of their own."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tests.kit.s3_server import S3Server
from tests.kit.spark_cluster import SparkCluster
from tests.kit.spark_driver import Driver

ROOT = Path(__file__).resolve().parents[3]
MODE = os.environ.get("LANCELET_SPARK_MODE", "classic")
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Two drivers fit into a cluster at a time, each with an executor on two workers.
SETTINGS = {
    "spark.cores.max": "2",
    "spark.app.name": "lancelet",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """What drivers and workers find in their environment; Python on workers inherits it."""
    found = dict(os.environ)
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    found.pop("SPARK_REMOTE", None)
    return found | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "LANCELET_CPU_THREADS": "1",
    }


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, environment):
    with SparkCluster(tmp_path_factory.mktemp("cluster"), environment) as made:
        yield made


@pytest.fixture(scope="session")
def server():
    with S3Server("shelf") as made:
        yield made


@pytest.fixture(scope="session")
def start_driver(tmp_path_factory, environment, cluster):
    """Return a function that starts a driver of the cluster with additional settings.

    In Connect mode it is a client without a JVM, and a server of its own.
    """

    @contextlib.contextmanager
    def start(settings=None):
        folder = tmp_path_factory.mktemp("driver")
        given = SETTINGS | {
            "spark.local.dir": str(folder),
            "spark.master": cluster.master,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **(settings or {}),
        }
        with contextlib.ExitStack() as stack:
            if MODE == "connect":
                given = {"spark.remote": stack.enter_context(cluster.connect_server(given))}
            log = folder / "driver.log"
            yield stack.enter_context(Driver(given, environment, log=log, dumps=cloudpickle.dumps))

    return start


@pytest.fixture(scope="session")
def driver(start_driver):
    with start_driver() as made:
        yield made


@pytest.fixture(scope="module")
def server_address(cluster):
    """Return the address of a Spark Connect server with jobs on the cluster."""
    with cluster.connect_server(SETTINGS) as address:
        yield address


@pytest.fixture
def table(server, request):
    """Return the URI of a table of the test on S3."""
    return f"s3://shelf/{request.node.name.replace('[', '-').strip(']')}.lance"

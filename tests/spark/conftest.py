"""One Spark session for all tests of a process: classic, or Connect if the environment says so."""

import os
import sys
import warnings
from pathlib import Path

import pytest

MODE = os.environ.get("LANCELET_SPARK_MODE", "classic")
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


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
    session.stop()

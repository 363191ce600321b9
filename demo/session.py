"""A Spark session on this machine, with a Java from PyPI where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "lancelet.spark.daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def open_session(folder: Path) -> SparkSession:
    """Start Spark with a thread for each processor; what it keeps lies in `folder`."""
    from pyspark.sql import SparkSession

    provide_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Tasks import what the demo's functions are made of.
    paths = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    builder = SparkSession.builder.appName("lancelet demo").master("local[*, 2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder / "spark"))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    # Spark looks for pandas, which nothing here uses, and warns of releases it does not know.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    return builder.getOrCreate()


def provide_java() -> None:
    """Point Spark at a Java 17 or later, which is installed from PyPI if it must."""
    script = HERE.parent / "tools" / "provide_java.py"
    found = subprocess.run(
        [sys.executable, str(script)], check=True, capture_output=True, text=True
    )
    os.environ["JAVA_HOME"] = found.stdout.strip()

"""A killed test run leaves no cluster, server or driver running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.child import is_running
from tests.kit.spark_cluster import descendants, wait_until

SECONDS_TO_END = 90
RUN = """
import os, sys, time
from pathlib import Path

from pyspark import cloudpickle

from conftest import SETTINGS
from tests.kit.s3_server import S3Server
from tests.kit.child import is_running
from tests.kit.spark_cluster import SparkCluster
from tests.kit.spark_driver import Driver

folder = Path(sys.argv[1])
server = S3Server()
server.pause()
cluster = SparkCluster(folder, os.environ, workers=1)
settings = SETTINGS | {"spark.master": cluster.master}
driver = Driver(settings, os.environ, log=folder / "driver.log", dumps=cloudpickle.dumps)

# An executor, and a worker of Python below it, are there now.
driver.run(lambda spark: spark.range(8).mapInArrow(lambda each: each, "id long").count())
print("all of them run", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no other system ends children so")
def test_nothing_outlives_a_run_that_was_killed(tmp_path, environment):
    paths = [environment["PYTHONPATH"], str(Path(__file__).parent)]
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        env=environment | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout.readline() == "all of them run\n"
        below = dict(descendants(run.pid))
        run.send_signal(signal.SIGKILL)
    for name in ("Master", "Worker", "CoarseGrained", "pyspark.daemon", "moto", "SparkSubmit"):
        assert any(name in command for command in below.values()), name

    wait_until(lambda: not any(map(is_running, below)), seconds=SECONDS_TO_END)

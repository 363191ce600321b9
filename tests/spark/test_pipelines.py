"""A sink of Spark's declarative pipelines, run by its own command."""

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

OTHER_SERVER = {
    "SPARK_REMOTE",
    "SPARK_LOCAL_REMOTE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
}
SPECIFICATION = """
name: demo
storage: file://{folder}/state
libraries:
  - glob:
      include: flows/**
"""
FLOW = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("rows", format="lance", options={{"path": "{folder}/sink.lance"}})


@dp.append_flow(target="rows")
def flow():
    return spark.readStream.format("lance").load("{folder}/source.lance")
"""


@pytest.mark.slow
def test_a_flow_appends_to_a_sink(tmp_path):
    lance.write_dataset(pa.table({"id": range(20)}), str(tmp_path / "source.lance"))
    (tmp_path / "flows").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=tmp_path))
    (tmp_path / "flows" / "flow.py").write_text(FLOW.format(folder=tmp_path))
    command = Path(sys.executable).with_name("spark-pipelines")
    # The run has a server of its own, beside that of a session of Connect in this process: without
    # what tells of the other, and at a port that is free, as Spark chooses one for its own tests.
    given = {name: text for name, text in os.environ.items() if name not in OTHER_SERVER}
    environment = given | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",
    }
    output = tmp_path / "output.txt"
    # A pipe would stay open for as long as any process that the run left behind.
    with output.open("w") as written:
        ended = subprocess.run(
            [command, "run", "--spec", "spark-pipeline.yml"],
            cwd=tmp_path,
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        )
    assert ended.returncode == 0, output.read_text()
    assert lance.dataset(str(tmp_path / "sink.lance")).count_rows() == 20

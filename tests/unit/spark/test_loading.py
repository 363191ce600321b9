"""Where `lancelet ingest` runs, and what it shows meanwhile."""

import argparse
import io
import os

import pytest

from lancelet.cli.ingest import add_arguments, run
from lancelet.cli.output import Output
from lancelet.errors import InvalidInputError
from lancelet.jobs.bar import TerminalBar
from lancelet.jobs.engine import JobReport
from lancelet.spark import loading
from lancelet.spark.running import Finished


class Builder:
    """Remembers what a session was asked to be."""

    def __init__(self):
        self.place = None

    def appName(self, _):  # noqa: N802 - Spark's name
        return self

    def config(self, *_):
        return self

    def master(self, name):
        self.place = ("master", name)
        return self

    def remote(self, name):
        self.place = ("remote", name)
        return self

    def getOrCreate(self):  # noqa: N802 - Spark's name
        return self

    def stop(self):
        pass


@pytest.fixture
def builder(monkeypatch):
    made = Builder()
    monkeypatch.setattr(loading, "SparkSession", type("Session", (), {"builder": made}))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "python3")
    return made


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], ("master", "local[*]")),
        (["--master", "spark://host:7077"], ("master", "spark://host:7077")),
        (["--remote", "sc://host:15002"], ("remote", "sc://host:15002")),
    ],
)
def test_a_pipeline_runs_on_this_machine_unless_another_is_named(
    builder, monkeypatch, words, place
):
    given = {}

    def load(source, target, **others):
        given.update(others, source=source, target=target)
        return Finished(1, 5, JobReport(()))

    monkeypatch.setattr(loading, "load", load)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(["in", "t.lance", *words])
    run(arguments, Output(stream=io.StringIO(), errors=terminal))
    assert builder.place == place
    assert (given["source"], given["target"], given["spark"]) == ("in", "t.lance", builder)
    assert isinstance(given["progress"], TerminalBar)


def test_a_master_counts_more_than_a_server_of_the_environment(builder, monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    loading.open_session("local[1]")
    assert builder.place == ("master", "local[1]")
    assert "SPARK_REMOTE" not in os.environ


def test_a_session_is_in_one_place(builder):
    with pytest.raises(InvalidInputError):
        loading.open_session("local[1]", "sc://host")
    assert builder.place is None

"""The Spark engine has the guarantees of the local engine."""

import os
import threading
import time
from pathlib import Path

import pytest

from lancelet.errors import CancelledError, InvalidInputError
from lancelet.jobs.engine import Done, Job, Progress
from lancelet.spark.engine import SparkEngine


@pytest.fixture
def engine(spark):
    return SparkEngine(spark)


def test_each_task_runs_in_a_partition_and_results_keep_their_order(engine):
    job = Job(engine)
    assert job.run("square", lambda n: Done(n * n, rows=1), range(7)) == [n * n for n in range(7)]
    assert job.report.phases[0].tasks == 7
    assert job.report.work.rows == 7


def test_a_task_computes_with_as_many_threads_as_spark_gave_it(engine):
    def threads(_):
        from lancelet.config import CPU_THREADS

        return Done(CPU_THREADS)

    assert Job(engine).run("threads", threads, [1]) == [1]


def test_an_error_of_ours_keeps_its_class_and_is_not_tried_again(engine, tmp_path):
    def refuse(number):
        (tmp_path / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        raise InvalidInputError("refused", number=number)

    with pytest.raises(InvalidInputError) as caught:
        Job(engine).run("refuse", refuse, [4])
    assert caught.value.facts == {"number": 4}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_fails_is_tried_again(engine, tmp_path):
    marker = str(tmp_path / "failed")

    def fail_once(number):
        if not Path(marker).exists():
            Path(marker).touch()
            raise RuntimeError("lost")
        return Done(number)

    assert Job(engine).run("fail", fail_once, [1]) == [1]
    assert Path(marker).exists()


def test_progress_ends_with_all_tasks_done(engine):
    told: list[Progress] = []
    Job(engine, progress=told.append).run("wait", lambda n: time.sleep(0.3) or Done(n), range(6))
    assert told[0] == Progress("wait", 0, 6)
    assert told[-1] == Progress("wait", 6, 6)
    assert len({each.done for each in told}) > 2


def test_stopping_interrupts_tasks_that_run(engine):
    stop = threading.Event()
    timer = threading.Timer(2, stop.set)
    timer.start()
    started = time.monotonic()
    with pytest.raises(CancelledError):
        Job(engine, stop=stop).run("wait", lambda _: time.sleep(60) or Done(None), [1, 2])
    assert time.monotonic() - started < 30
    timer.join()

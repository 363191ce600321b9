"""Engines on this machine: order, failures, what is reported, and stopping."""

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle

from lancelet.buffers import ByteRanges
from lancelet.errors import CancelledError, InvalidInputError, StorageUnavailableError
from lancelet.io.metered import PROCESS_METER, metered
from lancelet.io.open import open_folder
from lancelet.jobs import bar
from lancelet.jobs.engine import Done, Job, Progress, run_task
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.worker import WorkerDiedError
from tests.kit.mapped_files import resident_bytes


def square(number):
    return Done(number * number, rows=number)


def refuse(number):
    if number == 2:
        raise InvalidInputError("two is refused", number=number)
    return Done(number)


def lose_storage(number):
    raise StorageUnavailableError("no answer")


def die_once(marker):
    path = Path(marker)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Done("alive")


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_long(_):
    time.sleep(60)
    return Done(None)


OPEN = []
"""A process that runs tasks keeps files open from one to the next."""


def read_whole(folder):
    reader = open_folder(folder).open_reader("x")
    OPEN.append(reader)
    total = int(reader.read_ranges(ByteRanges.of((0, reader.size))).source.sum())
    assert resident_bytes(Path(folder) / "x") == reader.size
    return Done(total)


def put_bytes(folder):
    store = metered(open_folder(folder), PROCESS_METER.scope())
    store.put("x", b"12345")
    store.read("x")
    return Done(None)


@pytest.fixture(params=[1, 2], ids=["here", "beside"])
def engine(request):
    return LocalEngine(request.param)


def test_results_come_in_the_order_of_the_tasks(engine):
    assert Job(engine).run("square", square, range(5)) == [0, 1, 4, 9, 16]


def test_a_job_without_tasks_runs_nothing(engine):
    job = Job(engine)
    assert job.run("square", square, []) == []
    assert job.report.phases[0].tasks == 0


def test_each_phase_reports_its_rows_bytes_and_requests(engine, tmp_path):
    job = Job(engine)
    job.run("square", square, [1, 2, 3])
    job.run("put", put_bytes, [str(tmp_path / name) for name in "ab"])
    first, second = job.report.phases
    assert (first.name, first.tasks, first.work.rows) == ("square", 3, 6)
    assert (second.work.read_bytes, second.work.written_bytes, second.work.requests) == (10, 10, 4)
    assert job.report.work == first.work + second.work


def test_bytes_read_by_a_task_are_released(tmp_path):
    (tmp_path / "x").write_bytes(b"\1" * (1 << 20))
    try:
        assert Job(LocalEngine(1)).run("read", read_whole, [str(tmp_path)]) == [1 << 20]
        assert resident_bytes(tmp_path / "x") == 0
        assert OPEN[-1].read_tail(3).tobytes() == b"\1\1\1"
    finally:
        OPEN.pop().close()


def test_an_error_of_ours_keeps_its_class_and_facts(engine):
    with pytest.raises(InvalidInputError) as caught:
        Job(engine).run("refuse", refuse, [1, 2, 3])
    assert caught.value.facts == {"number": 2}


def test_a_fault_of_storage_reaches_the_caller(engine):
    with pytest.raises(StorageUnavailableError):
        Job(engine).run("lose", lose_storage, [1, 2])


def test_a_task_is_tried_again_when_its_worker_dies(tmp_path):
    tasks = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert Job(LocalEngine(2)).run("die", die_once, tasks) == ["alive", "alive"]


def test_a_task_that_kills_every_worker_is_an_error():
    with pytest.raises(WorkerDiedError):
        Job(LocalEngine(2)).run("die", die, [1, 2])


def test_functions_of_a_script_run_in_other_processes():
    offset = 10
    assert Job(LocalEngine(2, dumps=cloudpickle.dumps)).run(
        "add", lambda x: Done(x + offset), [1, 2]
    ) == [11, 12]


def test_progress_ends_with_all_tasks_done(engine):
    told: list[Progress] = []
    Job(engine, progress=told.append).run("square", square, range(3))
    assert told[0] == Progress("square", 0, 3)
    assert told[-1] == Progress("square", 3, 3)
    assert [each.done for each in told] == sorted(each.done for each in told)


def test_stopping_ends_tasks_that_run():
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    started = time.monotonic()
    with pytest.raises(CancelledError):
        Job(LocalEngine(2), stop=stop).run("wait", wait_long, [1, 2])
    assert time.monotonic() - started < 20
    timer.join()


def test_a_stopped_job_begins_no_phase(engine):
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        Job(engine, stop=stop).run("square", square, [1])


def test_the_bar_starts_a_line_and_a_clock_for_each_phase(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 4.0, 100.0, 107.0])
    monkeypatch.setattr(bar.time, "perf_counter", lambda: next(clock))
    stream = io.StringIO()
    show = bar.TerminalBar(stream)
    show(Progress("compact", 1, 2))
    show(Progress("compact", 2, 2))
    lines = stream.getvalue()
    assert "1/2  1.0 s" in lines
    assert lines.endswith("2/2  4.0 s\n")
    show(Progress("index", 1, 2))
    assert stream.getvalue().endswith("1/2  96.0 s")


def test_a_phase_whose_tasks_others_start_is_reported() -> None:
    seen = []
    job = Job(LocalEngine(1), progress=seen.append)
    before = time.perf_counter()

    def outcomes(control):
        control.report(1)
        return [run_task(square, 3), run_task(square, 4)]

    assert job.collect("squares", outcomes, total=5) == [9, 16]
    (report,) = job.report.phases
    assert 0 <= report.seconds <= time.perf_counter() - before
    assert (report.name, report.tasks) == ("squares", 2)
    assert [(each.done, each.total) for each in seen] == [(0, 5), (1, 5), (2, 2)]

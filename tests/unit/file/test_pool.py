"""The pool: results in order, memory bounded, errors at their turn, and no way to block it."""

import os
import subprocess
import sys
import threading
import time

import pytest

from lancelet.file import pool
from lancelet.file.pool import is_worker, map_ordered, submit
from lancelet.surroundings import Pool


def test_results_come_in_the_order_of_items():
    def task(item):
        time.sleep(0.002 * (item % 3))
        return item

    assert list(map_ordered(task, range(30))) == list(range(30))
    assert list(map_ordered(task, range(30), waits=True)) == list(range(30))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_tasks_run_in_the_thread_of_the_caller(count):
    here = threading.get_ident()
    threads = list(map_ordered(lambda _: threading.get_ident(), range(count)))
    assert threads == [here] * count


def test_few_long_tasks_run_side_by_side(monkeypatch):
    monkeypatch.setattr(pool, "CPU_THREADS", 2)
    both = threading.Barrier(2, timeout=10)
    assert len(list(map_ordered(lambda _: both.wait(), range(2), few=2))) == 2


def test_only_a_window_of_tasks_is_started(monkeypatch):
    monkeypatch.setattr(pool, "CPU_THREADS", 2)
    started = []
    results = map_ordered(started.append, range(100), window=5)
    next(results)
    assert len(started) <= 6
    results.close()
    assert len(started) <= 6


def test_an_error_is_raised_at_its_turn(monkeypatch):
    monkeypatch.setattr(pool, "CPU_THREADS", 2)

    def task(item):
        if item == 5:
            raise KeyError(item)
        return item

    found = []
    with pytest.raises(KeyError):
        found.extend(map_ordered(task, range(20)))
    results = map_ordered(task, range(20))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        next(results)


def test_nothing_runs_on_after_the_caller_stopped(monkeypatch):
    monkeypatch.setattr(pool, "CPU_THREADS", 2)
    running = []

    def task(item):
        running.append(item)
        time.sleep(0.01)
        running.remove(item)
        return item

    results = map_ordered(task, range(50))
    next(results)
    results.close()
    assert running == []


def test_a_task_of_the_pool_never_waits_for_the_pool(monkeypatch):
    monkeypatch.setattr(pool, "CPU_THREADS", 2)

    def outer(item):
        assert is_worker()
        assert submit(is_worker).result()
        return sum(map_ordered(lambda inner: inner + item, range(10)))

    assert list(map_ordered(outer, range(20))) == [45 + 10 * item for item in range(20)]
    assert not is_worker()


FORK_AFTER_USE = """
import os
from lancelet.file import pool

pool.CPU_THREADS = 2
list(pool.map_ordered(abs, range(10)))
child = os.fork()
total = sum(pool.map_ordered(abs, range(-100, 0)))
if child == 0:
    os._exit(0 if total == 5050 else 1)
print(total, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_forked_child_has_a_pool_of_its_own(run_program):
    assert run_program(FORK_AFTER_USE) == "5050 0\n"


LATE = """
import atexit, sys, threading
from lancelet.file import pool
from lancelet.file.pool import map_ordered, submit
from lancelet.io.pool import run_in_background, run_requests

pool.CPU_THREADS = 2

def late():
    threading.main_thread().join()
    work()

def work():
    assert list(map_ordered(abs, range(-9, 0))) == list(range(9, 0, -1))
    assert list(map_ordered(abs, range(-9, 0), waits=True)) == list(range(9, 0, -1))
    assert submit(lambda: 5).result() == 5
    assert run_requests([lambda: 1, lambda: 2]) == [1, 2]
    assert run_in_background(lambda: 7).result() == 7
    failing = map_ordered(lambda number: 1 // number, [1, 2, 3, 0, 4, 5])
    try:
        print(list(failing))
    except ZeroDivisionError:
        print("done")

if sys.argv[1] == "thread":
    threading.Thread(target=late).start()
else:
    atexit.register(work)
"""


@pytest.mark.parametrize("when", ["thread", "atexit"])
def test_work_continues_after_the_main_thread_has_ended(when):
    command = [sys.executable, "-c", LATE, when]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout == "done\n", found.stderr


def test_a_task_that_the_system_has_no_thread_for_runs_at_most_once(monkeypatch):
    """The existing thread takes it from the queue, so no other thread may."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    goes_on, ran = threading.Event(), []
    with Pool(2) as threads:
        threads.submit(goes_on.wait, 10)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.submit(ran.append, 1).result()
        goes_on.set()
    assert ran == [1]

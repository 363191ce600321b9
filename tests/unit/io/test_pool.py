import os
import threading
import time
from concurrent.futures import wait
from functools import partial

import pytest

from lancelet.config import IO_THREADS
from lancelet.io.pool import run_in_background, run_requests


def test_requests_run_side_by_side_and_answers_keep_their_order():
    meet = threading.Barrier(8)

    def request(number: int) -> int:
        meet.wait(5)
        return number

    assert run_requests([lambda n=n: request(n) for n in range(8)]) == list(range(8))


def test_one_request_stays_in_its_thread():
    assert run_requests([threading.get_ident]) == [threading.get_ident()]
    assert run_requests([]) == []


def test_failure_is_raised_when_no_request_is_running_any_more():
    running = []

    def slow() -> None:
        running.append(1)
        time.sleep(0.1)
        running.pop()

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        run_requests([fail, slow, slow, slow])
    assert running == []


def test_requests_that_make_requests_never_wait_for_one_another():
    def several() -> list[int]:
        assert run_in_background(lambda: 7).result() == 7
        return run_requests([lambda: 1, lambda: 2])

    assert run_requests([several] * (4 * IO_THREADS)) == [[1, 2]] * (4 * IO_THREADS)


def test_background_errors_of_a_request_are_raised_at_its_result():
    def several() -> int:
        failed = run_in_background(partial(os.fsync, 1 << 30))
        wait([failed])
        with pytest.raises(OSError, match="descriptor"):
            failed.result()
        return 3

    assert run_requests([several] * 2) == [3, 3]


FORK_WITH_THREADS = """
import os
from lancelet.io.pool import run_in_background, run_requests

run_in_background(lambda: None).result(5)
child = os.fork()
if child == 0:
    os._exit(0 if run_requests([os.getpid] * 3) == [os.getpid()] * 3 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_has_threads_of_its_own(run_program):
    assert run_program(FORK_WITH_THREADS) == "0\n"

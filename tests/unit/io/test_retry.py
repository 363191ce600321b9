import pytest

from lancelet.errors import StorageError, StorageUnavailableError
from lancelet.io.retry import RetryPolicy, with_retries


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def run(policy, failures, clock, error=StorageUnavailableError):
    attempts = 0

    def request() -> int:
        nonlocal attempts
        attempts += 1
        if attempts <= failures:
            raise error("busy")
        return attempts

    return with_retries(
        request, policy, sleep=clock.sleep, clock=lambda: clock.now, jitter=lambda _, high: high
    )


@pytest.mark.parametrize("failures", [0, 1, 5, 10])
def test_request_is_repeated_until_it_succeeds(failures):
    assert run(RetryPolicy(retries_max=10), failures, Clock()) == failures + 1


def test_the_last_error_has_the_number_of_attempts():
    with pytest.raises(StorageUnavailableError) as caught:
        run(RetryPolicy(retries_max=2), 99, Clock())
    assert caught.value.__notes__ == ["gave up after 3 attempts"]


def test_waits_double_up_to_a_bound():
    clock = Clock()
    run(RetryPolicy(first_wait_seconds=1, longest_wait_seconds=5), 5, clock)
    assert clock.waits == [1, 2, 4, 5, 5]


def test_no_wait_goes_past_the_time_limit():
    clock = Clock()
    with pytest.raises(StorageUnavailableError):
        run(RetryPolicy(timeout_seconds=10, first_wait_seconds=1), 99, clock)
    assert clock.now <= 10


def test_other_errors_are_final():
    clock = Clock()
    with pytest.raises(StorageError):
        run(RetryPolicy(), 1, clock, error=StorageError)
    assert clock.waits == []


def test_waits_are_spread_at_random():
    waits: list[float] = []

    def fail() -> None:
        raise StorageUnavailableError("busy")

    with pytest.raises(StorageUnavailableError):
        with_retries(fail, RetryPolicy(retries_max=8), sleep=waits.append)
    bounds = [RetryPolicy().wait_bound_seconds(retry) for retry in range(8)]
    assert all(0 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len(set(waits)) > 1

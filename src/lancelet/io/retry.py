"""Trying again: how often, how long, and with how much patience between.

A wait is drawn between nothing and a bound that doubles, so that callers who failed together do
not come back together (full jitter).

    bound of the wait   0.1  0.2  0.4  0.8 ... 15 seconds
    waited              0.03 0.19 0.11 0.52 ...

Only `StorageUnavailableError` is tried again: it says that the store did not answer or asked for
patience. Whoever raises it for a write knows that doing the write twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lancelet import surroundings
from lancelet.errors import StorageUnavailableError
from lancelet.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to give up, and how long to wait before."""

    retries_max: int = 10
    timeout_seconds: float = 180.0
    first_wait_seconds: float = 0.1
    longest_wait_seconds: float = 15.0

    def wait_bound_seconds(self, retry: int) -> float:
        """Return the longest wait before a retry, which counts from 0.

        >>> [RetryPolicy().wait_bound_seconds(retry) for retry in (0, 1, 2, 20)]
        [0.1, 0.2, 0.4, 15.0]
        """
        # The exponent is bounded, or a long run of retries would overflow.
        return float(min(self.longest_wait_seconds, self.first_wait_seconds * 2 ** min(retry, 30)))


def with_retries(
    request: Callable[[], T],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], None] = surroundings.sleep,
    clock: Callable[[], float] = surroundings.monotonic,
    jitter: Callable[[float, float], float] = surroundings.uniform,
) -> T:
    """Run a request until it succeeds, fails for good, or the policy gives up.

    The last error is raised as it came, with a note of how many attempts there were.

    >>> answers = iter([StorageUnavailableError("busy"), "done"])
    >>> def request():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> with_retries(request, RetryPolicy(), sleep=lambda seconds: None)
    'done'
    """
    give_up_at = clock() + policy.timeout_seconds
    retry = 0
    while True:
        try:
            return request()
        except StorageUnavailableError as error:
            wait = jitter(0.0, policy.wait_bound_seconds(retry))
            if retry >= policy.retries_max or clock() + wait > give_up_at:
                error.add_note(f"gave up after {retry + 1} attempts")
                raise
        sleep(wait)
        retry += 1

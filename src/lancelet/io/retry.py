"""Retries with exponential backoff and full jitter.

The delay before a retry is uniformly distributed between zero and a maximum that doubles with each
retry:

    maximum delay   0.1  0.2  0.4  0.8 ... 15 seconds
    delay           0.03 0.19 0.11 0.52 ...

Only `StorageUnavailableError` is retried. It indicates that the store did not respond or throttled
the request, and is raised for writes only if these are idempotent.
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
    """The maximum number of retries, the timeout and the delays."""

    retries_max: int = 10
    timeout_seconds: float = 180.0
    first_wait_seconds: float = 0.1
    longest_wait_seconds: float = 15.0

    def wait_bound_seconds(self, retry: int) -> float:
        """Return the maximum delay before a retry; the first retry is 0.

        >>> [RetryPolicy().wait_bound_seconds(retry) for retry in (0, 1, 2, 20)]
        [0.1, 0.2, 0.4, 15.0]
        """
        # The exponent is limited to prevent an overflow.
        return float(min(self.longest_wait_seconds, self.first_wait_seconds * 2 ** min(retry, 30)))


def with_retries(
    request: Callable[[], T],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], None] = surroundings.sleep,
    clock: Callable[[], float] = surroundings.monotonic,
    jitter: Callable[[float, float], float] = surroundings.uniform,
) -> T:
    """Run a request until it succeeds, raises a permanent error or exceeds the policy.

    The last error is re-raised with a note on the number of attempts.

    >>> answers = iter([StorageUnavailableError("busy"), "done"])
    >>> def request():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> with_retries(request, RetryPolicy(), sleep=lambda seconds: None)
    'done'
    """
    deadline = clock() + policy.timeout_seconds
    retry = 0
    while True:
        try:
            return request()
        except StorageUnavailableError as error:
            wait = jitter(0.0, policy.wait_bound_seconds(retry))
            if retry >= policy.retries_max or clock() + wait > deadline:
                error.add_note(f"gave up after {retry + 1} attempts")
                raise
        sleep(wait)
        retry += 1

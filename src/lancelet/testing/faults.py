"""A store that fails on purpose: at one request, before it is done or after.

    FaultyStore(disk, "refuse", at=3)       request 3 is not done, and the caller is told so
    FaultyStore(disk, "lose_reply", at=3)   request 3 is done, but the caller hears nothing

A test raises `at` from 0 until `fired` stays false: then every request of an operation has failed
once, in both ways. Requests of readers and writers count as those of the store do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from lancelet.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    StorageUnavailableError,
)
from lancelet.io.store import Store
from lancelet.io.wrapped import Request, WrappedStore

T = TypeVar("T")

Fault: TypeAlias = Literal["refuse", "lose_reply"]


class FaultyStore(WrappedStore):
    """Delegates to another store, and fails once."""

    def __init__(
        self,
        inner: Store,
        fault: Fault = "refuse",
        at: int | None = None,
        *,
        delay_seconds: float = 0.0,
        only: Callable[[Request], bool] | None = None,
    ) -> None:
        """Fail request number `at`, counted from 0, among those that `only` picks.

        Without `at` nothing fails, and requests are only counted and delayed.
        """
        if fault not in {"refuse", "lose_reply"}:
            raise InvalidInputError("there is no such fault", fault=fault)
        self._failing = _Failing(fault, at, delay_seconds, only or (lambda _: True))
        super().__init__(inner, self._failing)

    @property
    def fired(self) -> bool:
        """Whether the request came that had to fail."""
        return self._failing.fired

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return len(self._failing.log)

    @property
    def log(self) -> tuple[Request, ...]:
        """The requests, in the order they came."""
        return tuple(self._failing.log)


class _Failing:
    """Counts requests and fails one of them."""

    def __init__(
        self, fault: Fault, at: int | None, delay_seconds: float, only: Callable[[Request], bool]
    ) -> None:
        self._fault = fault
        self._at = at
        self._delay_seconds = delay_seconds
        self._only = only
        self._lock = threading.Lock()
        self.log: list[Request] = []
        self.fired = False

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request, or fail it."""
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        if not self._is_due(request):
            return action()
        facts = {"operation": request.operation, "path": request.path, "at": self._at}
        if self._fault == "refuse":
            raise StorageUnavailableError("this request was made to fail", **facts)
        # A writer that its caller never gets to see must not stay open.
        abort = getattr(action(), "abort", None)
        if abort is not None:
            abort()
        if request.operation in {"put_if_absent", "rename_if_absent"}:
            raise CommitOutcomeUnknownError("this reply was made to be lost", **facts)
        raise StorageUnavailableError("this reply was made to be lost", **facts)

    def _is_due(self, request: Request) -> bool:
        if not self._only(request):
            return False
        with self._lock:
            number = len(self.log)
            self.log.append(request)
            if number != self._at:
                return False
            self.fired = True
            return True

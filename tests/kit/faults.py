"""Stores that inject a fault into one request, before or after it takes effect.

    FaultyStore(disk, "refuse", at=3)       request 3 fails without effect
    FaultyStore(disk, "lose_reply", at=3)   request 3 takes effect, but its reply is lost

A test increments `at` from 0 until `fired` is false: then every request of an operation has failed
once. Requests of readers and writers are counted like those of the store.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypeVar, cast

from lancelet.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    StorageError,
    StorageUnavailableError,
)
from lancelet.io.store import Store
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.surroundings import Surroundings

T = TypeVar("T")

Fault: TypeAlias = Literal["refuse", "lose_reply"]

_WRITES: Final = frozenset({"put", "put_if_absent", "write", "open_writer", "copy"})


class FaultyStore(WrappedStore):
    """Delegates to another store and fails once."""

    def __init__(
        self,
        inner: Store,
        fault: Fault = "refuse",
        at: int | None = None,
        *,
        delay_seconds: float = 0.0,
        only: Callable[[Request], bool] | None = None,
    ) -> None:
        """Fail request number `at`, counted from 0, among those that `only` selects.

        Without `at`, requests are only counted and delayed.
        """
        if fault not in {"refuse", "lose_reply"}:
            raise InvalidInputError("there is no such fault", fault=fault)
        self._failing = _Failing(fault, at, delay_seconds, only or (lambda _: True))
        super().__init__(inner, self._failing)

    @property
    def fired(self) -> bool:
        """Whether the fault was injected."""
        return self._failing.fired

    @property
    def requests(self) -> int:
        """The number of requests."""
        return len(self._failing.log)

    @property
    def log(self) -> tuple[Request, ...]:
        """The requests in order."""
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
        # The caller cannot close a writer that it never received.
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


class FaultySurroundings(Surroundings):
    """Fails one request of any store that is opened.

    with surroundings.replaced_by(FaultySurroundings("refuse", at=3)): ...
    """

    def __init__(
        self,
        fault: Fault = "refuse",
        at: int | None = None,
        *,
        only: Callable[[Request], bool] | None = None,
    ) -> None:
        """Fail request number `at`, counted from 0, among those that `only` selects."""
        self._failing = _Failing(fault, at, 0.0, only or (lambda _: True))

    @property
    def fired(self) -> bool:
        """Whether the fault was injected."""
        return self._failing.fired

    def wrap_store(self, store: T) -> T:
        """Return a store whose requests may fail, or an external manifest store unchanged."""
        if not hasattr(store, "open_reader"):
            return store
        return cast("T", WrappedStore(cast("Store", store), self._failing))


class FullStore(WrappedStore):
    """Delegates to another store and fails writes like a full disk until a file is deleted."""

    def __init__(self, inner: Store, *, frees: bool = True) -> None:
        """Fail writes; without `frees` also after deletions."""
        self._full = _Full(frees)
        super().__init__(inner, self._full)

    @property
    def refused(self) -> int:
        """The number of failed writes."""
        return self._full.refused


class _Full:
    """Fails writes with an error for a full disk."""

    def __init__(self, frees: bool) -> None:
        self._frees = frees
        self._is_full = True
        self.refused = 0

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request or fail it."""
        if request.operation.startswith("delete"):
            found = action()
            self._is_full = not self._frees
            return found
        if self._is_full and request.operation in _WRITES:
            self.refused += 1
            raise StorageError("the disk is full", path=request.path, errno=errno.ENOSPC)
        return action()

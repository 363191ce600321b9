"""Reinitialization of locks, threads and clients in forked children.

A fork copies memory, but only the calling thread. A lock held by another thread is never released
in the child, and a thread pool has no workers. PySpark forks Python workers from a daemon, and
PyTorch forks data loaders, so every owner of a lock registers a function that renews it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=object)

_RESETS: weakref.WeakKeyDictionary[object, Callable[[object], None]] = weakref.WeakKeyDictionary()


def reset_after_fork(holder: T, reset: Callable[[T], None]) -> None:
    """Call `reset(holder)` in every child that is forked while `holder` is alive.

    `reset` must not reference `holder`: pass a function, not a bound method. It runs before other
    threads of the child exist.
    """
    _RESETS[holder] = reset  # type: ignore[assignment]  # each holder is called with its own


def _renew_all() -> None:
    for holder, reset in list(_RESETS.items()):
        reset(holder)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

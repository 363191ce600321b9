"""What a forked child must make anew: locks, threads and the clients built on them.

A fork copies memory but only the thread that called it. A lock that another thread held stays
held for ever in the child, and a pool has no workers left. PySpark forks its Python workers from
a daemon, and PyTorch its data loaders, so whatever holds a lock registers here how to renew it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=object)

_RENEWALS: weakref.WeakKeyDictionary[object, Callable[[object], None]] = weakref.WeakKeyDictionary()


def renew_after_fork(holder: T, renew: Callable[[T], None]) -> None:
    """Call `renew(holder)` in every child that is forked while `holder` is alive.

    `renew` must not keep `holder` alive: pass a function, not a bound method. It runs before
    anything else of the child, so no other thread can interfere.
    """
    _RENEWALS[holder] = renew  # type: ignore[assignment]  # each holder is called with its own


def _renew_all() -> None:
    for holder, renew in list(_RENEWALS.items()):
        renew(holder)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

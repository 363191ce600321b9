"""Packages whose names are imported when they are first used.

Importing all that a dataset can do takes longer than many programs run; a command that prints the
version, or a worker that reads one file, needs little of it.

    import lancelet            a table of names, nothing else
    lancelet.write_dataset     imports `lancelet.dataset`, and is kept
    lancelet.optimize          a module: imported as if it had been named in an import

A function may have the name of a module, as `dataset` does. The import system binds a module in
its package once it is loaded, on any import; the function keeps the name all the same.

A module that is being imported is locked, and a child that is forked meanwhile would find it locked
for ever, as the thread that imports is not in it. So a fork waits for imports of other threads,
those within functions and within libraries too: Arrow locks what waits for pandas while it imports
pandas. A program may itself run inside an import, so a lock of others that is held without any
progress is waited for once, for a second.

One module cannot wait: `concurrent.futures.thread` is refused once the main thread has ended, when
other threads may go on, and it takes part in forks from then on that it is loaded.

Large modules of others can wait, too: `load_late` puts one in its place that is loaded when it is
asked for what a small one lacks.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see above
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_FORK_WAITS_S: Final = 10.0
"""A thread that imports may wait for the one that forks; so long after the last module that was
made the fork is made all the same."""

_OTHERS_WAIT_S: Final = 1.0
"""The same for an import that did not begin here: it may be a whole program."""

_LOOKS_S: Final = 0.002


class _Imports:
    """The threads that are importing something on demand."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        self.start_over()

    def start_over(self) -> None:
        here = threading.get_ident()
        self._changed = threading.Condition()
        self._depths = {thread: n for thread, n in self._depths.items() if thread == here}
        self._lasting: set[tuple[str, int]] = set()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        here = threading.get_ident()
        with self._changed:
            self._depths[here] = self._depths.get(here, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._depths[here] -= 1
                if not self._depths[here]:
                    del self._depths[here]
                    self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no other thread imports, and let none begin."""
        self._changed.acquire()
        here, known, since = threading.get_ident(), len(sys.modules), time.monotonic()
        while True:
            held = _held_locks() - self._lasting
            owners = {*self._depths, *(owner for _, owner in held)}
            if not owners or here in owners:
                break
            self._changed.wait(_LOOKS_S)
            limit = _FORK_WAITS_S if self._depths else _OTHERS_WAIT_S
            if known != len(sys.modules):
                known, since = len(sys.modules), time.monotonic()
            elif time.monotonic() - since > limit:
                self._lasting |= held
                break

    def after_fork(self) -> None:
        self._changed.release()


def _held_locks() -> set[tuple[str, int]]:
    """Return the names of modules that are being imported, with the threads that import them."""
    # The import system has no other way to ask; where it has none of this, imports on demand count.
    locks = getattr(importlib._bootstrap, "_module_locks", {})  # noqa: SLF001
    found = {
        (str(name), getattr(reference(), "owner", None)) for name, reference in list(locks.items())
    }
    return {(name, owner) for name, owner in found if owner is not None}


_IMPORTS: Final = _Imports()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_IMPORTS.before_fork,
        after_in_parent=_IMPORTS.after_fork,
        after_in_child=_IMPORTS.start_over,
    )


class _SentByName(ModuleType):
    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reference: functions that use the module are sent to workers of Spark."""
        return importlib.import_module, (self.__name__,)


class Package(_SentByName):
    """A package that finds its public names in other modules, on demand."""

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        """Import what has a name; `home:other` is what another name has there."""
        home = self._homes.get(name)
        if home is not None:
            module, _, other = home.partition(":")
            with _IMPORTS.one_more():
                found = getattr(importlib.import_module(module), other or name)
        elif self._is_module(name):
            with _IMPORTS.one_more():
                found = importlib.import_module(f"{self.__name__}.{name}")
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        super().__setattr__(name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        """Bind a name, but not to a module that is called as a public name is."""
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """List all names, imported or not."""
        return sorted({*super().__dir__(), *self._homes})

    def _is_module(self, name: str) -> bool:
        if name.startswith("_") or "__path__" not in vars(self):
            return False
        return importlib.util.find_spec(f"{self.__name__}.{name}") is not None


def import_on_demand(package: str, homes: Mapping[str, str]) -> None:
    """Make a package find names at home when they are asked for.

    Args:
        package: The name of the package, which calls this as it is imported.
        homes: The module of each name, or `module:other` for one that is called otherwise there.
    """
    module = sys.modules[package]
    module.__dict__["_homes"] = homes
    module.__class__ = Package


class _LateModule(_SentByName):
    """A module that is loaded when somebody asks for a name that its core lacks."""

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if not name.startswith("_") and name in (core := vars(own["_core"])):
            return own.setdefault(name, core[name])
        if not name.startswith("__") or name == "__all__":
            with own["_lock"]:
                load, own["_load"] = own["_load"], None  # it asks for names of its own, too
                if load is not None:
                    with _IMPORTS.one_more():
                        load(self)
        if name in own:
            return own[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """Load the module, and list its names."""
        getattr(self, "__all__", None)
        return sorted(vars(self))


def load_late(name: str, core: ModuleType) -> None:
    """Let a module of a package wait until it is asked for a name that another one lacks.

    Args:
        name: The module, as `package.module`. If it is loaded, it stays as it is.
        core: What defines many of its names, and is loaded faster.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None, "a module of a package that is installed"
    assert spec.loader is not None, "it is found by a loader"
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _LateModule
    vars(module).update(_core=core, _lock=threading.RLock(), _load=spec.loader.exec_module)
    if sys.modules.setdefault(name, module) is module:
        package, _, short = name.rpartition(".")
        setattr(sys.modules[package], short, module)

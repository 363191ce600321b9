"""Packages that import their public names on first use.

Importing all modules takes longer than many programs run; a command that prints the version, or a
worker that reads one file, needs few of them.

    import lancelet            a table of names
    lancelet.write_dataset     imports `lancelet.dataset` and caches the name
    lancelet.optimize          a submodule, imported as by an import statement

A function may have the same name as a submodule, such as `dataset`. The import system binds a
submodule in its package when it is loaded; the package rejects this binding.

Importing a module locks it. A child process forked during an import would inherit the lock without
the importing thread, and deadlock. Therefore a fork waits for imports in other threads, including
imports in functions and libraries: Arrow holds a lock while it imports pandas. Since a whole
program may run inside an import, a foreign lock without progress delays a fork only once, for one
second.

`concurrent.futures.thread` is imported eagerly: it cannot be imported after the main thread has
ended while other threads still run, and it registers fork handlers when it is loaded.
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

_FORK_WAIT_MAX_S: Final = 10.0
"""The time limit of a fork for imports in other threads, from the last newly loaded module.

The importing thread may be blocked by the forking thread."""

_FOREIGN_WAIT_MAX_S: Final = 1.0
"""The same for foreign imports, which may run a whole program."""

_POLL_INTERVAL_S: Final = 0.002


class _Imports:
    """The threads with imports on demand in progress."""

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
        """Wait until no other thread imports, and block new imports."""
        self._changed.acquire()
        here, num_modules, since = threading.get_ident(), len(sys.modules), time.monotonic()
        while True:
            held = _held_locks() - self._lasting
            owners = {*self._depths, *(owner for _, owner in held)}
            if not owners or here in owners:
                break
            self._changed.wait(_POLL_INTERVAL_S)
            limit = _FORK_WAIT_MAX_S if self._depths else _FOREIGN_WAIT_MAX_S
            if num_modules != len(sys.modules):
                num_modules, since = len(sys.modules), time.monotonic()
            elif time.monotonic() - since > limit:
                self._lasting |= held
                break

    def after_fork(self) -> None:
        self._changed.release()


def _held_locks() -> set[tuple[str, int]]:
    """Return pairs of modules being imported and their importing threads."""
    # There is no public API; without `_module_locks`, only imports on demand are considered.
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
        """Pickle as a reference, because Spark sends functions that use the module to workers."""
        return importlib.import_module, (self.__name__,)


class Package(_SentByName):
    """A package that imports its public names from other modules on demand."""

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        """Import a name; `home:other` is the name `other` of the module `home`."""
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
        """Bind a name, unless it is a submodule with the name of a public function."""
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """Return all names, imported or not."""
        return sorted({*super().__dir__(), *self._homes})

    def _is_module(self, name: str) -> bool:
        if name.startswith("_") or "__path__" not in vars(self):
            return False
        return importlib.util.find_spec(f"{self.__name__}.{name}") is not None


def import_on_demand(package: str, homes: Mapping[str, str]) -> None:
    """Make a package import its names on first use.

    Args:
        package: The name of the package, which calls this function during its import.
        homes: The module of each name, or `module:other` for a different name in the module.
    """
    module = sys.modules[package]
    module.__dict__["_homes"] = homes
    module.__class__ = Package


class _LateModule(_SentByName):
    """A placeholder that loads a module when its core module lacks a name."""

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if not name.startswith("_") and name in (core := vars(own["_core"])):
            return own.setdefault(name, core[name])
        if not name.startswith("__") or name == "__all__":
            with own["_lock"]:
                load, own["_load"] = own["_load"], None  # loading uses attributes too
                if load is not None:
                    with _IMPORTS.one_more():
                        load(self)
        if name in own:
            return own[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """Load the module, and return its names."""
        getattr(self, "__all__", None)
        return sorted(vars(self))


def load_late(name: str, core: ModuleType) -> None:
    """Defer loading a large third-party module until a name is used that its core module lacks.

    Until then, a placeholder provides the names of the core module.

    Args:
        name: The module, as `package.module`. A loaded module remains unchanged.
        core: A smaller module that defines many of the names.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None, "the package is installed"
    assert spec.loader is not None, "the spec has a loader"
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _LateModule
    vars(module).update(_core=core, _lock=threading.RLock(), _load=spec.loader.exec_module)
    if sys.modules.setdefault(name, module) is module:
        package, _, short = name.rpartition(".")
        setattr(sys.modules[package], short, module)

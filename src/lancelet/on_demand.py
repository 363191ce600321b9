"""Packages whose names are imported when they are first used.

Importing all that a dataset can do takes longer than many programs run; a command that prints the
version, or a worker that reads one file, needs little of it.

    import lancelet            a table of names, nothing else
    lancelet.write_dataset     imports `lancelet.dataset`, and is kept
    lancelet.optimize          a module: imported as if it had been named in an import

A function may have the name of a module, as `dataset` does. The import system binds a module in
its package once it is loaded, whoever asked for it; the function keeps the name all the same.

A module that is being imported is locked, and a child that is forked meanwhile would find it locked
for ever, as the thread that imports is not in it. So a fork waits for imports of other threads.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_FORK_WAITS_S: Final = 10.0
"""A thread that imports may wait for the one that forks; after this the fork is made."""


class _Imports:
    """The threads that are importing something on demand."""

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        self._changed = threading.Condition()
        self._depths: dict[int, int] = {}

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
        if threading.get_ident() not in self._depths:
            self._changed.wait_for(lambda: not self._depths, timeout=_FORK_WAITS_S)

    def after_fork(self) -> None:
        self._changed.release()


_IMPORTS: Final = _Imports()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_IMPORTS.before_fork,
        after_in_parent=_IMPORTS.after_fork,
        after_in_child=_IMPORTS.start_over,
    )


class Package(ModuleType):
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a reference: functions that use the package are sent to workers of Spark."""
        return importlib.import_module, (self.__name__,)

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

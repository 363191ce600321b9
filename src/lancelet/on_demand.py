"""Packages whose names are imported when they are first used.

Importing all that a dataset can do takes longer than many programs run; a command that prints the
version, or a worker that reads one file, needs little of it.

    import lancelet            a table of names, nothing else
    lancelet.write_dataset     imports `lancelet.dataset`, and is kept
    lancelet.optimize          a module: imported as if it had been named in an import

A function may have the name of a module, as `dataset` does. The import system binds a module in
its package once it is loaded, whoever asked for it; the function keeps the name all the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class Package(ModuleType):
    """A package that finds its public names in other modules, on demand."""

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        """Import what has a name; `home:other` is what another name has there."""
        home = self._homes.get(name)
        if home is not None:
            module, _, other = home.partition(":")
            found = getattr(importlib.import_module(module), other or name)
        elif self._is_module(name):
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
        if name.startswith("_"):
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

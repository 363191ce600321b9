"""The `lance` module of lancelet, and the import hook for it and its submodules."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import lancelet
from lancelet.about import PYLANCE_VERSION
from lancelet.on_demand import Package

_NAME: Final = "lance"
_FOR_CHILDREN: Final = Path(__file__).parent / "for_children"
_PATH_VARIABLE: Final = "PYTHONPATH"


class PylanceLoadedError(ImportError):
    """Another package called `lance` was imported before."""


class _Lance(Package):
    """The module `lance`: the names of lancelet, and the version of pylance."""


class _Finder(MetaPathFinder, Loader):
    """Finds `lance`, and each `lance.x` as the module `lancelet.x`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the import spec of a module, or None if pylance has no such module."""
        del path, target
        if fullname == _NAME:
            return ModuleSpec(_NAME, self, origin=lancelet.__file__, is_package=True)
        if not fullname.startswith(f"{_NAME}."):
            return None
        found = importlib.util.find_spec(_own_name(fullname))
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, self, origin=found.origin, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the lancelet module for a name of pylance."""
        if spec.name == _NAME:
            return _lance()
        module = importlib.import_module(_own_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed when it was imported under its own name."""
        spec = module.__spec__
        if spec is not None and spec.loader_state is not None:
            # The import system has replaced the spec of the module by the spec of the alias.
            module.__spec__ = spec.loader_state


def install() -> None:
    """Make `import lance` import lancelet, in this process and in child processes.

    Further calls have no effect.

    Raises:
        PylanceLoadedError: If another package called `lance` was imported before.
    """
    loaded = sys.modules.get(_NAME)
    if isinstance(loaded, _Lance):
        return
    if loaded is not None and not _is_ours(loaded):
        raise PylanceLoadedError(
            "another package called `lance` was imported before, from "
            f"{getattr(loaded, '__file__', None)}; import lancelet.as_lance before anything that "
            "imports lance, or run the program by `python -m lancelet.as_lance`",
            name=_NAME,
        )
    sys.meta_path.insert(0, _Finder())
    sys.modules.pop(_NAME, None)
    importlib.import_module(_NAME)
    paths = [path for path in os.environ.get(_PATH_VARIABLE, "").split(os.pathsep) if path]
    if str(_FOR_CHILDREN) not in paths:
        os.environ[_PATH_VARIABLE] = os.pathsep.join([str(_FOR_CHILDREN), *paths])


def _own_name(name: str) -> str:
    return lancelet.__name__ + name.removeprefix(_NAME)


def _is_ours(module: ModuleType) -> bool:
    """Return whether a module is the `lance` package for child processes."""
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(_FOR_CHILDREN)


def _lance() -> ModuleType:
    module = _Lance(_NAME, lancelet.__doc__)
    own: dict[str, Any] = {
        "_homes": vars(lancelet)["_homes"],
        "__all__": lancelet.__all__,
        "__file__": lancelet.__file__,
        "__path__": [],
        "__version__": PYLANCE_VERSION,
    }
    vars(module).update(own)
    return module

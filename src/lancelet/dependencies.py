"""Optional packages, imported on first use. Mirrors the pylance module of this name.

Import optional packages from this module:

    from lancelet.dependencies import torch
    torch.zeros(3)         imports PyTorch, or raises if it is not installed
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType
from typing import Any, Final

_INTROSPECTION: Final = re.compile(r"__\w+__")
"""Attributes that tools inspect on any module; they do not import the package."""


class _LazyModule(ModuleType):
    """A placeholder that imports a package on first use."""

    def __init__(self, module_name: str, *, module_available: bool) -> None:
        """Create a placeholder for a package that may not be installed."""
        super().__init__(module_name)
        self._module_available = module_available

    def __getattr__(self, name: str) -> Any:
        """Import the package and return one of its attributes.

        Raises:
            ModuleNotFoundError: If the package is not installed.
        """
        if self._module_available and name != "__wrapped__":
            return getattr(importlib.import_module(self.__name__), name)
        if _INTROSPECTION.fullmatch(name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise ModuleNotFoundError(
            f"{name} requires {self.__name__!r} module to be installed", name=self.__name__
        )


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


_HUGGING_FACE_AVAILABLE = _is_installed("datasets")
_NUMPY_AVAILABLE = _is_installed("numpy")
_PANDAS_AVAILABLE = _is_installed("pandas")
_POLARS_AVAILABLE = _is_installed("polars")
_PYDANTIC_AVAILABLE = _is_installed("pydantic")
_TORCH_AVAILABLE = _is_installed("torch")

datasets = _LazyModule("datasets", module_available=_HUGGING_FACE_AVAILABLE)
numpy = _LazyModule("numpy", module_available=_NUMPY_AVAILABLE)
pandas = _LazyModule("pandas", module_available=_PANDAS_AVAILABLE)
polars = _LazyModule("polars", module_available=_POLARS_AVAILABLE)
torch = _LazyModule("torch", module_available=_TORCH_AVAILABLE)


def model_to_dict(obj: Any) -> dict[str, Any]:
    """Return the fields of a Pydantic model, of version 1 or 2."""
    fields: dict[str, Any] = obj.model_dump() if hasattr(obj, "model_dump") else obj.dict()
    return fields

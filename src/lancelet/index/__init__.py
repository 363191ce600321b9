"""Index implementations, one package per kind. They handle rows and files, not tables."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.index import registry, vector

__all__ = ["registry", "vector"]

import_on_demand(__name__, {})

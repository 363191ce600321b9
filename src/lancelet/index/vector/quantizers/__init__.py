"""Quantizers: encodings of the vectors of a partition."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.index.vector.quantizers import registry

__all__ = ["registry"]

import_on_demand(__name__, {})

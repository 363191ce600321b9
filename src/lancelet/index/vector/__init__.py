"""Vector indices: IVF partitions with flat or quantized vectors."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.index.vector import kind, layout, quantizers, train, vectors, writer

__all__ = ["kind", "layout", "quantizers", "train", "vectors", "writer"]

import_on_demand(__name__, {})

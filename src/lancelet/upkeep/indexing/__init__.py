"""Create, optimize, describe and drop indices."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.upkeep.indexing import (
        build,
        describe,
        drop,
        optimize,
        recall,
        resume,
        staged,
        vector_models,
        vectors,
    )

__all__ = [
    "build",
    "describe",
    "drop",
    "optimize",
    "recall",
    "resume",
    "staged",
    "vector_models",
    "vectors",
]

import_on_demand(__name__, {})

"""The names of the options of plans and loaders, from their signatures."""

from __future__ import annotations

import inspect
from typing import Final

from lancelet.training.loader import Loader
from lancelet.training.plan import plan

PLAN_OPTIONS: Final = frozenset(inspect.signature(plan).parameters) - {
    "dataset",
    "columns",
    "filter",
}
LOADER_OPTIONS: Final = frozenset(inspect.signature(Loader.__init__).parameters) - {
    "self",
    "source",
    "batch_size",
    "rank",
    "world_size",
    "to",
    "collate",
}

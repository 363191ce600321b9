"""Change the columns of a table: add, cast, rename, drop and replace columns."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.change.columns import (
        add,
        alter,
        checkpoint,
        computed,
        drop,
        fields,
        from_given,
        refresh,
        replace,
        sources,
        update,
    )

__all__ = [
    "add",
    "alter",
    "checkpoint",
    "computed",
    "drop",
    "fields",
    "from_given",
    "refresh",
    "replace",
    "sources",
    "update",
]

import_on_demand(__name__, {})

"""Materialised views: definitions, queries, and refreshes from the changes of the source."""

# ruff: noqa: TC004 - modules are imported lazily; these imports are for type checkers

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.views import definition, groups, refresh, relation, rows, statement, stored, tasks

__all__ = ["definition", "groups", "refresh", "relation", "rows", "statement", "stored", "tasks"]

import_on_demand(__name__, {})

"""Check the integrity of a table at several levels."""

# ruff: noqa: TC004 - names are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.upkeep.check.finding import Coverage, Finding, Findings, Level, Severity
    from lancelet.upkeep.check.run import check

__all__ = ["Coverage", "Finding", "Findings", "Level", "Severity", "check"]

import_on_demand(
    __name__,
    {
        "Coverage": "lancelet.upkeep.check.finding",
        "Finding": "lancelet.upkeep.check.finding",
        "Findings": "lancelet.upkeep.check.finding",
        "Level": "lancelet.upkeep.check.finding",
        "Severity": "lancelet.upkeep.check.finding",
        "check": "lancelet.upkeep.check.run",
    },
)

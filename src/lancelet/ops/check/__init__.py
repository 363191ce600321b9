"""Check the integrity of a table at several levels."""

# ruff: noqa: TC004 - names are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.ops.check.finding import Coverage, Finding, Findings, Level, Severity
    from lancelet.ops.check.run import check

__all__ = ["Coverage", "Finding", "Findings", "Level", "Severity", "check"]

import_on_demand(
    __name__,
    {
        "Coverage": "lancelet.ops.check.finding",
        "Finding": "lancelet.ops.check.finding",
        "Findings": "lancelet.ops.check.finding",
        "Level": "lancelet.ops.check.finding",
        "Severity": "lancelet.ops.check.finding",
        "check": "lancelet.ops.check.run",
    },
)

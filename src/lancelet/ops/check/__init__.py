"""Checking that a table is sound, level by level."""

from lancelet.ops.check.finding import Finding, Level, Severity
from lancelet.ops.check.run import check, iter_findings

__all__ = ["Finding", "Level", "Severity", "check", "iter_findings"]

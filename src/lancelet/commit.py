"""Locks and conflicts of commits, under pylance's name for the module."""

from lancelet.errors import CommitConflictError
from lancelet.table.handlers import CommitLock

__all__ = ["CommitConflictError", "CommitLock"]

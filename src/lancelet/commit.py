"""Commit locks and commit conflicts. Mirrors the pylance module of this name."""

from lancelet.errors import CommitConflictError
from lancelet.table.handlers import CommitLock

__all__ = ["CommitConflictError", "CommitLock"]

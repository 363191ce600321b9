"""What each operation makes of a version: one function per operation, all of them pure."""

from lancelet.table.apply.dispatch import apply_operation
from lancelet.table.apply.state import CommitContext, State

__all__ = ["CommitContext", "State", "apply_operation"]

"""Row changes between two versions of a table."""

from lancelet.ops.changes.delta import Delta, open_delta
from lancelet.ops.changes.feed import CHANGE_KINDS, ChangeFeed, changes
from lancelet.ops.changes.rows import ChangeKind

__all__ = ["CHANGE_KINDS", "ChangeFeed", "ChangeKind", "Delta", "changes", "open_delta"]

"""Row changes between two versions of a table."""

from lancelet.upkeep.changes.delta import Delta, open_delta
from lancelet.upkeep.changes.feed import CHANGE_KINDS, ChangeFeed, changes
from lancelet.upkeep.changes.rows import ChangeKind

__all__ = ["CHANGE_KINDS", "ChangeFeed", "ChangeKind", "Delta", "changes", "open_delta"]

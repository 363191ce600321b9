"""Which commits may follow which, and how one is adjusted to follow."""

from lancelet.table.conflict.rules import KINDS, RULES, judge
from lancelet.table.conflict.verdict import Outcome, Verdict

__all__ = ["KINDS", "RULES", "Outcome", "Verdict", "judge"]

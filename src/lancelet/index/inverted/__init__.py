"""The INVERTED kind: which texts have which tokens, how often and where."""

from lancelet.index.inverted.kind import Inverted

__all__ = ["Inverted"]

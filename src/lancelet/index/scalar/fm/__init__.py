"""The FM kind: which texts have a given text in them."""

from lancelet.index.scalar.fm.kind import Fm

__all__ = ["Fm"]

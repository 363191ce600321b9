"""Texts that are nearly the same, found by signatures of the words that stand together."""

from lancelet.index.scalar.minhash.kind import MinHash

__all__ = ["MinHash"]

"""The NGRAM kind: which texts have which three letters in a row."""

from lancelet.index.scalar.ngram.kind import NGram

__all__ = ["NGram"]

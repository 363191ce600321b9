"""Kernels in NumPy: the definition of each, and what runs where the native module is missing."""

from lancelet.kernels.reference.bitpack import unpack_chunks

__all__ = ["unpack_chunks"]

"""Kernels by the native module: the same names and signatures as `lancelet.kernels.reference`."""

from lancelet.kernels.native.bitpack import unpack_chunks

__all__ = ["unpack_chunks"]

"""Kernels by the native module: the same names and signatures as `lancelet.kernels.reference`."""

from lancelet.kernels.topics import bind

globals().update(bind(__name__))

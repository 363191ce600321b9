"""Kernels in NumPy: the definition of each, and what runs where the native module is missing."""

from lancelet.kernels.topics import bind

globals().update(bind(__name__))

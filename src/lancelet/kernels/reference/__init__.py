"""NumPy reference kernels, used if the native module is missing."""

from lancelet.kernels.topics import KERNELS, bind

globals().update(bind(__name__, KERNELS))

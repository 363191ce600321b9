"""The definition of each kernel of indices, in NumPy."""

from lancelet.index.kernels.topics import KERNELS
from lancelet.kernels.topics import bind

globals().update(bind(__name__, KERNELS))

"""Native kernels, with the names and signatures of `lancelet.index.kernels.reference`."""

from lancelet.index.kernels.topics import KERNELS
from lancelet.kernels.topics import bind

globals().update(bind(__name__, KERNELS))

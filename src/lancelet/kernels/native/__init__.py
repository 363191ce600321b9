"""Native kernels, with the names and signatures of `lancelet.kernels.reference`."""

from lancelet.kernels.topics import KERNELS, bind

globals().update(bind(__name__, KERNELS))

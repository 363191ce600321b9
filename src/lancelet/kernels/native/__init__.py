"""Native kernels, with the names and signatures of `lancelet.kernels.reference`."""

from lancelet.kernels.topics import bind

globals().update(bind(__name__))

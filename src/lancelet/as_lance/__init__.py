"""`import lance` imports lancelet, so programs written for pylance run unchanged.

    python -m lancelet.as_lance program.py --its arguments
    python -m lancelet.as_lance -m its.module --its arguments

    import lancelet.as_lance      # in this process; before any import of `lance`

`lance` is then a separate module with the names of `lancelet`. Its `__version__` is the pylance
release that defines the API. `lance.dataset` and other submodules are those of lancelet. Child
processes import lancelet as well: their `PYTHONPATH` starts with a folder that contains a `lance`
package for this purpose.
"""

from lancelet.as_lance.alias import PylanceLoadedError, install

__all__ = ["PylanceLoadedError", "install"]

install()

"""`import lance` finds lancelet, so that programs written for pylance run unchanged.

    python -m lancelet.as_lance program.py --its arguments
    python -m lancelet.as_lance -m its.module --its arguments

    import lancelet.as_lance      # the same for one process, before anything imports `lance`

`lance` is then a module of its own, whose names are those of `lancelet` and whose `__version__` is
the release of pylance whose API they offer; `lance.dataset` and the other modules are lancelet's
own. Processes that this one starts find lancelet as well: their `PYTHONPATH` begins with a folder
in which `lance` leads here.
"""

from lancelet.as_lance.alias import PylanceLoadedError, install

__all__ = ["PylanceLoadedError", "install"]

install()

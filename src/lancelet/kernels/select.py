"""Which implementation of the kernels this process uses, decided once, at import.

The native module where it can be imported, with the code for the best instruction set of this
machine; else the NumPy definitions, with one warning, because they are slower by ten times and
more. `LANCELET_KERNELS` decides otherwise, for tests and for the day one doubts a kernel:

    LANCELET_KERNELS=reference     the NumPy definitions, no warning
    LANCELET_KERNELS=native        the native module, and an error where it is missing
    LANCELET_KERNELS=x86-64-v2     the same, with the code for this instruction set
"""

from __future__ import annotations

import os
import warnings
from typing import Final

from lancelet.errors import InvalidInputError, UnsupportedError

_ENVIRONMENT: Final = "LANCELET_KERNELS"


class SlowKernelsWarning(RuntimeWarning):
    """The native kernels are missing, so the NumPy definitions do the work."""


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets this machine has native kernels for, worst first."""
    try:
        import lancelet.kernels._native as _native  # noqa: PLC0415, PLR0402  the module may be missing
    except ImportError:
        return ()
    return tuple(name.replace("_", "-") for name in _native.supported_sets())


def use_instruction_set(name: str) -> None:
    """Call the native code of another instruction set from now on, in the whole process."""
    import lancelet.kernels._native as _native  # noqa: PLC0415, PLR0402  the module may be missing

    _native.use_set(name.replace("-", "_"))


def backend() -> str:
    """Return `reference`, or the instruction set of the native kernels in use.

    >>> backend() in ("reference", *instruction_sets())
    True
    """
    if not NATIVE:
        return "reference"
    import lancelet.kernels._native as _native  # noqa: PLC0415, PLR0402  the module may be missing

    return _native.set_in_use().replace("_", "-")


def _choose() -> bool:
    requested = os.environ.get(_ENVIRONMENT, "")
    if requested == "reference":
        return False
    available = instruction_sets()
    if requested not in ("", "native", *available):
        raise InvalidInputError(
            f"{_ENVIRONMENT} names kernels that this machine does not have",
            found=requested,
            available=("reference", "native", *available),
        )
    if not available:
        if requested == "native":
            raise UnsupportedError("the native kernels of lancelet are not installed")
        warnings.warn(
            "the native kernels of lancelet are not installed, so reading and writing will be "
            "slow; install a wheel for this platform, or a C++20 compiler and then lancelet",
            SlowKernelsWarning,
            stacklevel=2,
        )
        return False
    use_instruction_set(available[-1] if requested in ("", "native") else requested)
    return True


NATIVE: Final = _choose()
"""Whether the exported kernels are the native ones."""

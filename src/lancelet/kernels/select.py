"""Selection of the kernel implementation, once per process at import.

By default, this is the native module with the best instruction set of the machine. If it is
missing, NumPy is used and a warning is issued, because it is at least ten times slower. The
environment variable `LANCELET_KERNELS` overrides the selection:

    LANCELET_KERNELS=reference     NumPy, without a warning
    LANCELET_KERNELS=native        the native module; an error if it is missing
    LANCELET_KERNELS=x86-64-v2     the native module with this instruction set
"""

from __future__ import annotations

import os
import warnings
from typing import Final

from lancelet.errors import InvalidInputError, UnsupportedError

_ENVIRONMENT: Final = "LANCELET_KERNELS"


class SlowKernelsWarning(RuntimeWarning):
    """The native kernels are not installed, so the slower NumPy implementations are used."""


def instruction_sets() -> tuple[str, ...]:
    """Return the supported instruction sets with native kernels, in ascending order."""
    try:
        import lancelet.kernels._native as _native  # noqa: PLC0415, PLR0402  the module may be missing
    except ImportError:
        return ()
    return tuple(name.replace("_", "-") for name in _native.supported_sets())


def use_instruction_set(name: str) -> None:
    """Switch the native kernels of the process to another instruction set."""
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
            f"{_ENVIRONMENT} names kernels that are not available",
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

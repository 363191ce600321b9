"""Loops over buffers: native where possible, NumPy as the definition and the fallback.

`docs/kernels.md` lists them and says how to add one.
"""

from lancelet.kernels.faults import OffsetOverflowError
from lancelet.kernels.select import (
    NATIVE,
    SlowKernelsWarning,
    backend,
    instruction_sets,
    use_instruction_set,
)

if NATIVE:
    from lancelet.kernels.native import unpack_chunks
else:
    from lancelet.kernels.reference import unpack_chunks

__all__ = [
    "NATIVE",
    "OffsetOverflowError",
    "SlowKernelsWarning",
    "backend",
    "instruction_sets",
    "unpack_chunks",
    "use_instruction_set",
]

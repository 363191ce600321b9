"""Loops over buffers, native if possible, with NumPy reference implementations.

`docs/kernels.md` lists the kernels and describes how to add one.
"""

from typing import TYPE_CHECKING

from lancelet.kernels.arguments import Levels
from lancelet.kernels.faults import OffsetOverflowError
from lancelet.kernels.full_zip import ZipShape
from lancelet.kernels.offsets import Offsets
from lancelet.kernels.pages import ENCODINGS, Found, PageRules, PagesEncoded, PageValues
from lancelet.kernels.plans import ColumnPlan, FetchedRanges, MappedFile, TakenRows
from lancelet.kernels.recycled import RecycledMemory, recycled_bytes, recycling
from lancelet.kernels.select import (
    NATIVE,
    SlowKernelsWarning,
    backend,
    instruction_sets,
    use_instruction_set,
)
from lancelet.kernels.topics import KERNELS, bind
from lancelet.kernels.zstd import zstd_compress_chunks

__all__ = [
    "ENCODINGS",
    "NATIVE",
    "ColumnPlan",
    "FetchedRanges",
    "Found",
    "Levels",
    "MappedFile",
    "OffsetOverflowError",
    "Offsets",
    "PageRules",
    "PageValues",
    "PagesEncoded",
    "RecycledMemory",
    "SlowKernelsWarning",
    "TakenRows",
    "ZipShape",
    "backend",
    "instruction_sets",
    "recycled_bytes",
    "recycling",
    "use_instruction_set",
    "zstd_compress_chunks",
]

# Both implementations have the same names; the process binds one of them.
if TYPE_CHECKING:
    from lancelet.kernels.reference.bitpack import *
    from lancelet.kernels.reference.checksum import *
    from lancelet.kernels.reference.chunks import *
    from lancelet.kernels.reference.copies import *
    from lancelet.kernels.reference.dictionary import *
    from lancelet.kernels.reference.distinct import *
    from lancelet.kernels.reference.fsst import *
    from lancelet.kernels.reference.full_zip import *
    from lancelet.kernels.reference.hashing import *
    from lancelet.kernels.reference.jsonb import *
    from lancelet.kernels.reference.levels import *
    from lancelet.kernels.reference.lz4 import *
    from lancelet.kernels.reference.map_file import *
    from lancelet.kernels.reference.pages import *
    from lancelet.kernels.reference.plans import *
    from lancelet.kernels.reference.protobuf import *
    from lancelet.kernels.reference.read_ahead import *
    from lancelet.kernels.reference.rle import *
    from lancelet.kernels.reference.split_bytes import *
    from lancelet.kernels.reference.text import *
    from lancelet.kernels.reference.variable import *
    from lancelet.kernels.reference.zones import *
    from lancelet.kernels.reference.zstd import *
else:
    globals().update(bind(f"{__name__}.{'native' if NATIVE else 'reference'}", KERNELS))

"""Loops over buffers, native if possible, with NumPy reference implementations.

`docs/kernels.md` lists the kernels and describes how to add one.
"""

from typing import TYPE_CHECKING

from lancelet.kernels.arguments import Levels
from lancelet.kernels.faults import OffsetOverflowError
from lancelet.kernels.graph import Comparison, Graph, Metric
from lancelet.kernels.mapped import ColumnPlan, MappedFile, TakenRows
from lancelet.kernels.offsets import Offsets
from lancelet.kernels.partitions import (
    BLOCK_ROWS,
    CodeKind,
    CodeQuery,
    PackedCodes,
    Probes,
    RowMasks,
)
from lancelet.kernels.posting_lists import PostingLists
from lancelet.kernels.row_levels import LevelLimits, PackedLevels, RowLevels
from lancelet.kernels.segment_rules import (
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
    complex_class,
)
from lancelet.kernels.select import (
    NATIVE,
    SlowKernelsWarning,
    backend,
    instruction_sets,
    use_instruction_set,
)
from lancelet.kernels.small import Found, SmallPage, SmallPages
from lancelet.kernels.topics import bind
from lancelet.kernels.wavelet import WaveletTree
from lancelet.kernels.zip_shape import ZipShape
from lancelet.kernels.zstd import zstd_compress_chunks

__all__ = [
    "BLOCK_ROWS",
    "NATIVE",
    "CharacterClass",
    "ClusterPart",
    "CodeKind",
    "CodeQuery",
    "ColumnPlan",
    "Comparison",
    "Found",
    "Graph",
    "Language",
    "LevelLimits",
    "Levels",
    "MappedFile",
    "Metric",
    "OffsetOverflowError",
    "Offsets",
    "PackedCodes",
    "PackedLevels",
    "PostingLists",
    "Probes",
    "RowLevels",
    "RowMasks",
    "SegmentRules",
    "SlowKernelsWarning",
    "SmallPage",
    "SmallPages",
    "TakenRows",
    "WaveletTree",
    "ZipShape",
    "backend",
    "complex_class",
    "instruction_sets",
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
    from lancelet.kernels.reference.fst import *
    from lancelet.kernels.reference.full_zip import *
    from lancelet.kernels.reference.graphs import *
    from lancelet.kernels.reference.hashing import *
    from lancelet.kernels.reference.jsonb import *
    from lancelet.kernels.reference.levels import *
    from lancelet.kernels.reference.lz4 import *
    from lancelet.kernels.reference.map_file import *
    from lancelet.kernels.reference.partitions import *
    from lancelet.kernels.reference.plans import *
    from lancelet.kernels.reference.postings import *
    from lancelet.kernels.reference.protobuf import *
    from lancelet.kernels.reference.rle import *
    from lancelet.kernels.reference.segments import *
    from lancelet.kernels.reference.small_pages import *
    from lancelet.kernels.reference.split_bytes import *
    from lancelet.kernels.reference.substrings import *
    from lancelet.kernels.reference.text_search import *
    from lancelet.kernels.reference.tokens import *
    from lancelet.kernels.reference.variable import *
    from lancelet.kernels.reference.vectors import *
    from lancelet.kernels.reference.zones import *
    from lancelet.kernels.reference.zstd import *
else:
    globals().update(bind(f"{__name__}.{'native' if NATIVE else 'reference'}"))

"""Loops over buffers: native where possible, NumPy as the definition and the fallback.

`docs/kernels.md` lists them and says how to add one.
"""

from lancelet.kernels.arguments import Levels
from lancelet.kernels.faults import OffsetOverflowError
from lancelet.kernels.graph import Comparison, Graph
from lancelet.kernels.mapped import (
    ChunkRun,
    ConstantRun,
    FewColumns,
    FewRows,
    ItemRun,
    KnownColumn,
    KnownItems,
    KnownRun,
    KnownSymbols,
    MappedFile,
    ZippedRun,
)
from lancelet.kernels.metric import Metric
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
from lancelet.kernels.wavelet import WaveletTree
from lancelet.kernels.zip_shape import ZipShape
from lancelet.kernels.zstd import zstd_compress_chunks

__all__ = [
    "BLOCK_ROWS",
    "NATIVE",
    "CharacterClass",
    "ChunkRun",
    "ClusterPart",
    "CodeKind",
    "CodeQuery",
    "Comparison",
    "ConstantRun",
    "FewColumns",
    "FewRows",
    "Graph",
    "ItemRun",
    "KnownColumn",
    "KnownItems",
    "KnownRun",
    "KnownSymbols",
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
    "WaveletTree",
    "ZipShape",
    "ZippedRun",
    "backend",
    "complex_class",
    "instruction_sets",
    "use_instruction_set",
    "zstd_compress_chunks",
]

# The kernels themselves are listed by each implementation, which offer the same.
if NATIVE:
    from lancelet.kernels import native
    from lancelet.kernels.native import *  # noqa: F403 - all of it is meant

    __all__ += native.__all__
else:
    from lancelet.kernels import reference
    from lancelet.kernels.reference import *  # noqa: F403 - all of it is meant

    __all__ += reference.__all__

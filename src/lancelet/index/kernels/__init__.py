"""Loops over the buffers of indices; like `lancelet.kernels`, native or in NumPy."""

from typing import TYPE_CHECKING

from lancelet.index.kernels.graphs import Comparison, Graph
from lancelet.index.kernels.partitions import (
    BLOCK_ROWS,
    CodeKind,
    CodeQuery,
    PackedCodes,
    Probes,
    RowMasks,
)
from lancelet.index.kernels.postings import PostingLists
from lancelet.index.kernels.segments import (
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
    complex_class,
)
from lancelet.index.kernels.substrings import WaveletTree
from lancelet.index.kernels.topics import KERNELS
from lancelet.index.kernels.vectors import Metric
from lancelet.kernels.select import NATIVE
from lancelet.kernels.topics import bind

__all__ = [
    "BLOCK_ROWS",
    "CharacterClass",
    "ClusterPart",
    "CodeKind",
    "CodeQuery",
    "Comparison",
    "Graph",
    "Language",
    "Metric",
    "PackedCodes",
    "PostingLists",
    "Probes",
    "RowMasks",
    "SegmentRules",
    "WaveletTree",
    "complex_class",
]

# Both implementations have the same names; the process binds one of them.
if TYPE_CHECKING:
    from lancelet.index.kernels.reference.codes import *
    from lancelet.index.kernels.reference.fst import *
    from lancelet.index.kernels.reference.graphs import *
    from lancelet.index.kernels.reference.partitions import *
    from lancelet.index.kernels.reference.postings import *
    from lancelet.index.kernels.reference.segments import *
    from lancelet.index.kernels.reference.substrings import *
    from lancelet.index.kernels.reference.text_search import *
    from lancelet.index.kernels.reference.tokens import *
    from lancelet.index.kernels.reference.vectors import *
else:
    globals().update(bind(f"{__name__}.{'native' if NATIVE else 'reference'}", KERNELS))

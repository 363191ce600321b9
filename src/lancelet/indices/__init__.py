"""Values about indices, under pylance's name for the module."""

from lancelet.dataset.index_config import (
    IndexConfig,
    IndexFileVersion,
    SupportedDistributedIndices,
)
from lancelet.dataset.index_values import Index as IndexSegment
from lancelet.dataset.indexing import IndexDescription, IndexSegmentDescription
from lancelet.indices.builder import IndicesBuilder
from lancelet.indices.ivf import IvfModel
from lancelet.indices.pq import PqModel

__all__ = [
    "IndexConfig",
    "IndexDescription",
    "IndexFileVersion",
    "IndexSegment",
    "IndexSegmentDescription",
    "IndicesBuilder",
    "IvfModel",
    "PqModel",
    "SupportedDistributedIndices",
]

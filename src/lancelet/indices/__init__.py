"""Index classes, exported under the module name that pylance uses."""

from lancelet.dataset.index.scalar import IndexDescription, IndexSegmentDescription
from lancelet.dataset.index.values import Index as IndexSegment
from lancelet.dataset.index.values import (
    IndexConfig,
    IndexFileVersion,
    SupportedDistributedIndices,
)
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

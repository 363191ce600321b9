"""Values about indices, under pylance's name for the module."""

from lancelet.dataset.index_config import (
    IndexConfig,
    IndexFileVersion,
    SupportedDistributedIndices,
)
from lancelet.dataset.indexing import IndexDescription, IndexSegmentDescription

__all__ = [
    "IndexConfig",
    "IndexDescription",
    "IndexFileVersion",
    "IndexSegmentDescription",
    "SupportedDistributedIndices",
]

"""The public objects: datasets, their fragments and scanners, and how to write them."""

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.fragment import LanceFragment
from lancelet.dataset.history import Version
from lancelet.dataset.maintenance import AutoCleanupConfig, DatasetOptimizer
from lancelet.dataset.mutation import DeleteResult, UpdateResult
from lancelet.dataset.refs import Branch, Branches, Tag, Tags, VersionRef
from lancelet.dataset.scanner import ColumnOrdering, LanceScanner, ScannerBuilder
from lancelet.dataset.session import Session
from lancelet.dataset.statistics import (
    DatasetStats,
    DataStatistics,
    FieldStatistics,
    LanceStats,
)
from lancelet.dataset.write import dataset, write_dataset

__all__ = [
    "AutoCleanupConfig",
    "Branch",
    "Branches",
    "ColumnOrdering",
    "DataStatistics",
    "DatasetOptimizer",
    "DatasetStats",
    "DeleteResult",
    "FieldStatistics",
    "LanceDataset",
    "LanceFragment",
    "LanceScanner",
    "LanceStats",
    "ScannerBuilder",
    "Session",
    "Tag",
    "Tags",
    "UpdateResult",
    "Version",
    "VersionRef",
    "dataset",
    "write_dataset",
]

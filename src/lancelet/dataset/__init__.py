"""The public objects: datasets, their fragments and scanners, and how to write them."""

from lancelet.dataset.committing import (
    LANCE_COMMIT_MESSAGE_KEY,
    BulkCommitResult,
    Transaction,
)
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.fragment import LanceFragment
from lancelet.dataset.history import Version
from lancelet.dataset.index_values import Index, IndexFile
from lancelet.dataset.maintenance import AutoCleanupConfig, DatasetOptimizer
from lancelet.dataset.merge_insert import ExecuteResult, MergeInsertBuilder
from lancelet.dataset.mutation import DeleteResult, UpdateResult
from lancelet.dataset.operations import LanceOperation
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
    "LANCE_COMMIT_MESSAGE_KEY",
    "AutoCleanupConfig",
    "Branch",
    "Branches",
    "BulkCommitResult",
    "ColumnOrdering",
    "DataStatistics",
    "DatasetOptimizer",
    "DatasetStats",
    "DeleteResult",
    "ExecuteResult",
    "FieldStatistics",
    "Index",
    "IndexFile",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceStats",
    "MergeInsertBuilder",
    "ScannerBuilder",
    "Session",
    "Tag",
    "Tags",
    "Transaction",
    "UpdateResult",
    "Version",
    "VersionRef",
    "dataset",
    "write_dataset",
]

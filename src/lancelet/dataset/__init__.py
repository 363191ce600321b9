"""The public objects: datasets, their fragments and scanners, and how to write them."""

from lancelet.dataset.changes import DatasetDelta
from lancelet.dataset.committing import (
    LANCE_COMMIT_MESSAGE_KEY,
    BulkCommitResult,
    Transaction,
)
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.evolution import AlterColumn
from lancelet.dataset.fragment import LanceFragment
from lancelet.dataset.history import Version
from lancelet.dataset.index_values import Index, IndexFile
from lancelet.dataset.indexing import IndexInformation
from lancelet.dataset.maintenance import AutoCleanupConfig, DatasetOptimizer
from lancelet.dataset.merge_insert import ExecuteResult, MergeInsertBuilder
from lancelet.dataset.mutation import DeleteResult, UpdateResult
from lancelet.dataset.operations import LanceOperation
from lancelet.dataset.refs import Branch, Branches, Tag, Tags, VersionRef
from lancelet.dataset.row_ids import serialize_row_addrs
from lancelet.dataset.scanner import ColumnOrdering, LanceScanner, ScannerBuilder
from lancelet.dataset.search_filter import VectorSearchQuery
from lancelet.dataset.session import Session
from lancelet.dataset.sql import SqlQuery, SqlQueryBuilder
from lancelet.dataset.statistics import (
    DatasetStats,
    DataStatistics,
    FieldStatistics,
    LanceStats,
)
from lancelet.dataset.vector_reader import VectorIndexReader
from lancelet.dataset.write import dataset, write_dataset

__all__ = [
    "LANCE_COMMIT_MESSAGE_KEY",
    "AlterColumn",
    "AutoCleanupConfig",
    "Branch",
    "Branches",
    "BulkCommitResult",
    "ColumnOrdering",
    "DataStatistics",
    "DatasetDelta",
    "DatasetOptimizer",
    "DatasetStats",
    "DeleteResult",
    "ExecuteResult",
    "FieldStatistics",
    "Index",
    "IndexFile",
    "IndexInformation",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LanceStats",
    "MergeInsertBuilder",
    "ScannerBuilder",
    "Session",
    "SqlQuery",
    "SqlQueryBuilder",
    "Tag",
    "Tags",
    "Transaction",
    "UpdateResult",
    "VectorIndexReader",
    "VectorSearchQuery",
    "Version",
    "VersionRef",
    "dataset",
    "serialize_row_addrs",
    "write_dataset",
]

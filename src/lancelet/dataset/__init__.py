"""The public objects: datasets, their fragments and scanners, and how to write them."""

# ruff: noqa: TC004 - what is public is imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.arrow_on_demand import load_arrow_late
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
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

# What pylance imports for itself in this module can be taken from it, too.
_IMPORTED = {
    "BatchUDF": "lancelet.udf",
    "BatchUDFCheckpoint": "lancelet.udf",
    "Bitmap": "lancelet.bitmap",
    "BlobFile": "lancelet.blob",
    "CleanupExplanation": "lancelet.dataset.explanation",
    "CleanupStats": "lancelet.ops.cleanup",
    "Compaction": "lancelet.optimize",
    "CompactionMetrics": "lancelet.optimize",
    "DEFAULT_BLOB_BUFFER_SIZE": "lancelet.blob",
    "DataFile": "lancelet.fragment",
    "DatasetBasePath": "lancelet.dataset.bases",
    "DocumentGranularity": "lancelet.query",
    "FragmentMetadata": "lancelet.fragment",
    "FullTextQuery": "lancelet.query",
    "IOStats": "lancelet.io.metered:IoCounts",
    "IndexConfig": "lancelet.indices",
    "IndexSegment": "lancelet.indices",
    "LOGGER": "lancelet.log",
    "LanceSchema": "lancelet.schema",
    "MinHashQuery": "lancelet.query",
    "ScanStatistics": "lancelet.query.explain:ScanMetrics",
    "SupportedDistributedIndices": "lancelet.indices",
    "batch_udf": "lancelet.udf",
}

load_arrow_late()
import_on_demand(
    __name__,
    {
        **_IMPORTED,
        "AlterColumn": "lancelet.dataset.evolution",
        "AutoCleanupConfig": "lancelet.dataset.maintenance",
        "Branch": "lancelet.dataset.refs",
        "Branches": "lancelet.dataset.refs",
        "BulkCommitResult": "lancelet.dataset.committing",
        "ColumnOrdering": "lancelet.dataset.scanner",
        "DataStatistics": "lancelet.dataset.statistics",
        "DatasetDelta": "lancelet.dataset.changes",
        "DatasetOptimizer": "lancelet.dataset.maintenance",
        "DatasetStats": "lancelet.dataset.statistics",
        "DeleteResult": "lancelet.dataset.mutation",
        "ExecuteResult": "lancelet.dataset.merge_insert",
        "FieldStatistics": "lancelet.dataset.statistics",
        "Index": "lancelet.dataset.index_values",
        "IndexFile": "lancelet.dataset.index_values",
        "IndexInformation": "lancelet.dataset.indexing",
        "LANCE_COMMIT_MESSAGE_KEY": "lancelet.dataset.committing",
        "LanceDataset": "lancelet.dataset.dataset",
        "LanceFragment": "lancelet.dataset.fragment",
        "LanceOperation": "lancelet.dataset.operations",
        "LanceScanner": "lancelet.dataset.scanner",
        "LanceStats": "lancelet.dataset.statistics",
        "MergeInsertBuilder": "lancelet.dataset.merge_insert",
        "ScannerBuilder": "lancelet.dataset.scanner",
        "Session": "lancelet.dataset.session",
        "SqlQuery": "lancelet.dataset.sql",
        "SqlQueryBuilder": "lancelet.dataset.sql",
        "Tag": "lancelet.dataset.refs",
        "Tags": "lancelet.dataset.refs",
        "Transaction": "lancelet.dataset.committing",
        "UpdateResult": "lancelet.dataset.mutation",
        "VectorIndexReader": "lancelet.dataset.vector_reader",
        "VectorSearchQuery": "lancelet.dataset.search_filter",
        "Version": "lancelet.dataset.history",
        "VersionRef": "lancelet.dataset.refs",
        "_coerce_query_vector": "lancelet.dataset.query_vector:coerce_query_vector",
        "dataset": "lancelet.dataset.write",
        "serialize_row_addrs": "lancelet.dataset.row_ids",
        "write_dataset": "lancelet.dataset.write",
    },
)

"""The public API: datasets, fragments and scanners, and functions to write them."""

# ruff: noqa: TC004 - public names are imported on demand, and here for type checkers only

from typing import TYPE_CHECKING

from lancelet.arrow_on_demand import load_arrow_late
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.dataset.columns import AlterColumn
    from lancelet.dataset.dataset import LanceDataset, open_view
    from lancelet.dataset.fragment import LanceFragment
    from lancelet.dataset.history.changes import DatasetDelta
    from lancelet.dataset.history.refs import Branch, Branches, Tag, Tags, VersionRef
    from lancelet.dataset.history.row_ids import serialize_row_addrs
    from lancelet.dataset.history.versions import Version
    from lancelet.dataset.index.reader import VectorIndexReader
    from lancelet.dataset.index.scalar import IndexInformation
    from lancelet.dataset.index.values import Index, IndexFile
    from lancelet.dataset.maintenance.maintenance import AutoCleanupConfig, DatasetOptimizer
    from lancelet.dataset.maintenance.statistics import (
        DatasetStats,
        DataStatistics,
        FieldStatistics,
        LanceStats,
    )
    from lancelet.dataset.mutation import (
        DeleteResult,
        ExecuteResult,
        MergeInsertBuilder,
        UpdateResult,
    )
    from lancelet.dataset.scan.builder import ColumnOrdering, ScannerBuilder
    from lancelet.dataset.scan.scanner import LanceScanner
    from lancelet.dataset.scan.search import VectorSearchQuery
    from lancelet.dataset.session import Session
    from lancelet.dataset.sql.query import SqlQuery, SqlQueryBuilder
    from lancelet.dataset.views import MaterializedView
    from lancelet.dataset.write.committing import (
        LANCE_COMMIT_MESSAGE_KEY,
        BulkCommitResult,
        Transaction,
    )
    from lancelet.dataset.write.operations import LanceOperation
    from lancelet.dataset.write.write import dataset, write_dataset

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
    "MaterializedView",
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
    "open_view",
    "serialize_row_addrs",
    "write_dataset",
]

# pylance imports these names into its module, and programs import them from there.
_IMPORTED = {
    "BatchUDF": "lancelet.udf",
    "BatchUDFCheckpoint": "lancelet.udf",
    "Bitmap": "lancelet.bitmap",
    "BlobFile": "lancelet.blob",
    "CleanupExplanation": "lancelet.dataset.maintenance.maintenance",
    "CleanupStats": "lancelet.upkeep.cleanup",
    "Compaction": "lancelet.optimize",
    "CompactionMetrics": "lancelet.optimize",
    "DEFAULT_BLOB_BUFFER_SIZE": "lancelet.blob",
    "DataFile": "lancelet.fragment",
    "DatasetBasePath": "lancelet.dataset.maintenance.settings",
    "DocumentGranularity": "lancelet.query",
    "FragmentMetadata": "lancelet.fragment",
    "FullTextQuery": "lancelet.query",
    "IOStats": "lancelet.io.metered:IoCounts",
    "IndexConfig": "lancelet.indices",
    "IndexSegment": "lancelet.indices",
    "LOGGER": "lancelet.log",
    "LanceSchema": "lancelet.schema",
    "MinHashQuery": "lancelet.query",
    "ScanStatistics": "lancelet.scan.explain:ScanMetrics",
    "SupportedDistributedIndices": "lancelet.indices",
    "batch_udf": "lancelet.udf",
}

load_arrow_late()
import_on_demand(
    __name__,
    {
        **_IMPORTED,
        "AlterColumn": "lancelet.dataset.columns",
        "AutoCleanupConfig": "lancelet.dataset.maintenance.maintenance",
        "Branch": "lancelet.dataset.history.refs",
        "Branches": "lancelet.dataset.history.refs",
        "BulkCommitResult": "lancelet.dataset.write.committing",
        "ColumnOrdering": "lancelet.dataset.scan.builder",
        "DataStatistics": "lancelet.dataset.maintenance.statistics",
        "DatasetDelta": "lancelet.dataset.history.changes",
        "DatasetOptimizer": "lancelet.dataset.maintenance.maintenance",
        "DatasetStats": "lancelet.dataset.maintenance.statistics",
        "DeleteResult": "lancelet.dataset.mutation",
        "ExecuteResult": "lancelet.dataset.mutation",
        "FieldStatistics": "lancelet.dataset.maintenance.statistics",
        "Index": "lancelet.dataset.index.values",
        "IndexFile": "lancelet.dataset.index.values",
        "IndexInformation": "lancelet.dataset.index.scalar",
        "LANCE_COMMIT_MESSAGE_KEY": "lancelet.dataset.write.committing",
        "LanceDataset": "lancelet.dataset.dataset",
        "LanceFragment": "lancelet.dataset.fragment",
        "LanceOperation": "lancelet.dataset.write.operations",
        "LanceScanner": "lancelet.dataset.scan.scanner",
        "LanceStats": "lancelet.dataset.maintenance.statistics",
        "MaterializedView": "lancelet.dataset.views",
        "MergeInsertBuilder": "lancelet.dataset.mutation",
        "ScannerBuilder": "lancelet.dataset.scan.builder",
        "Session": "lancelet.dataset.session",
        "SqlQuery": "lancelet.dataset.sql.query",
        "SqlQueryBuilder": "lancelet.dataset.sql.query",
        "Tag": "lancelet.dataset.history.refs",
        "Tags": "lancelet.dataset.history.refs",
        "Transaction": "lancelet.dataset.write.committing",
        "UpdateResult": "lancelet.dataset.mutation",
        "VectorIndexReader": "lancelet.dataset.index.reader",
        "VectorSearchQuery": "lancelet.dataset.scan.search",
        "Version": "lancelet.dataset.history.versions",
        "VersionRef": "lancelet.dataset.history.refs",
        "_coerce_query_vector": "lancelet.dataset.scan.search:coerce_query_vector",
        "dataset": "lancelet.dataset.write.write",
        "open_view": "lancelet.dataset.dataset",
        "serialize_row_addrs": "lancelet.dataset.history.row_ids",
        "write_dataset": "lancelet.dataset.write.write",
    },
)

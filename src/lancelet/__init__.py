"""lancelet: the Lance table and file format in Python, with an optional PySpark integration."""

# ruff: noqa: TC004 - public names are imported on demand, and here for type checkers only

from os import environ
from typing import TYPE_CHECKING

from lancelet.about import __version__
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.blob import (
        Blob,
        BlobArray,
        BlobColumn,
        BlobDescriptor,
        BlobDescriptorArrayBuilder,
        BlobFile,
        DedicatedBlobWriter,
        PackedBlobWriter,
        blob_array,
        blob_field,
    )
    from lancelet.cpu import simd_info
    from lancelet.dataset import (
        DataStatistics,
        FieldStatistics,
        Index,
        IndexFile,
        LanceDataset,
        LanceFragment,
        LanceOperation,
        LanceScanner,
        MaterializedView,
        MergeInsertBuilder,
        Session,
        Transaction,
        dataset,
        open_view,
        write_dataset,
    )
    from lancelet.dataset.maintenance.maintenance import CleanupExplanation
    from lancelet.dataset.maintenance.settings import DatasetBasePath
    from lancelet.dataset.maintenance.statistics import bytes_read_counter, iops_counter
    from lancelet.dataset.sql.table_provider import FFILanceTableProvider
    from lancelet.dataset.sql.tables import sql
    from lancelet.fragment import FragmentMetadata
    from lancelet.index.text.tokenize import FtsToken, tokenize
    from lancelet.io.metered import IoCounts as IOStats
    from lancelet.log import set_logger
    from lancelet.mem_wal import (
        CompactedSsTable,
        ExecutionPlan,
        LsmPointLookupPlanner,
        LsmScanner,
        LsmVectorSearchPlanner,
        ShardingField,
        ShardingSpec,
        ShardSnapshot,
        ShardWriter,
        evaluate_sharding_spec,
    )
    from lancelet.progress import IndexProgress
    from lancelet.scan.explain import ScanMetrics as ScanStatistics
    from lancelet.schema import json_to_schema, schema_to_json
    from lancelet.udf import BatchUDF, ComputedColumn, batch_udf
    from lancelet.upkeep.cleanup import CleanupCandidateFile, CleanupReferencedBranch, CleanupStats
    from lancelet.util import sanitize_ts

__all__ = [
    "BatchUDF",
    "Blob",
    "BlobArray",
    "BlobColumn",
    "BlobDescriptor",
    "BlobDescriptorArrayBuilder",
    "BlobFile",
    "CleanupCandidateFile",
    "CleanupExplanation",
    "CleanupReferencedBranch",
    "CleanupStats",
    "CompactedSsTable",
    "ComputedColumn",
    "DataStatistics",
    "DatasetBasePath",
    "DedicatedBlobWriter",
    "ExecutionPlan",
    "FFILanceTableProvider",
    "FieldStatistics",
    "FragmentMetadata",
    "FtsToken",
    "IOStats",
    "Index",
    "IndexFile",
    "IndexProgress",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "LsmPointLookupPlanner",
    "LsmScanner",
    "LsmVectorSearchPlanner",
    "MaterializedView",
    "MergeInsertBuilder",
    "PackedBlobWriter",
    "ScanStatistics",
    "Session",
    "ShardSnapshot",
    "ShardWriter",
    "ShardingField",
    "ShardingSpec",
    "Transaction",
    "__version__",
    "batch_udf",
    "blob_array",
    "blob_field",
    "bytes_read_counter",
    "dataset",
    "evaluate_sharding_spec",
    "iops_counter",
    "json_to_schema",
    "open_view",
    "sanitize_ts",
    "schema_to_json",
    "set_logger",
    "simd_info",
    "sql",
    "tokenize",
    "write_dataset",
]

if "LANCE_LOG_FILE" in environ or "LANCE_LOG" in environ:
    from lancelet.log import log_by_environment

    log_by_environment()

import_on_demand(
    __name__,
    {
        "BatchUDF": "lancelet.udf",
        "Blob": "lancelet.blob",
        "BlobArray": "lancelet.blob",
        "BlobColumn": "lancelet.blob",
        "BlobDescriptor": "lancelet.blob",
        "BlobDescriptorArrayBuilder": "lancelet.blob",
        "BlobFile": "lancelet.blob",
        "CleanupCandidateFile": "lancelet.upkeep.cleanup",
        "CleanupExplanation": "lancelet.dataset.maintenance.maintenance",
        "CleanupReferencedBranch": "lancelet.upkeep.cleanup",
        "CleanupStats": "lancelet.upkeep.cleanup",
        "CompactedSsTable": "lancelet.mem_wal",
        "ComputedColumn": "lancelet.udf",
        "DataStatistics": "lancelet.dataset",
        "DatasetBasePath": "lancelet.dataset.maintenance.settings",
        "DedicatedBlobWriter": "lancelet.blob",
        "ExecutionPlan": "lancelet.mem_wal",
        "FFILanceTableProvider": "lancelet.dataset.sql.table_provider",
        "FieldStatistics": "lancelet.dataset",
        "FragmentMetadata": "lancelet.fragment",
        "FtsToken": "lancelet.index.text.tokenize",
        "IOStats": "lancelet.io.metered:IoCounts",
        "Index": "lancelet.dataset",
        "IndexFile": "lancelet.dataset",
        "IndexProgress": "lancelet.progress",
        "LanceDataset": "lancelet.dataset",
        "LanceFragment": "lancelet.dataset",
        "LanceOperation": "lancelet.dataset",
        "LanceScanner": "lancelet.dataset",
        "LsmPointLookupPlanner": "lancelet.mem_wal",
        "LsmScanner": "lancelet.mem_wal",
        "LsmVectorSearchPlanner": "lancelet.mem_wal",
        "MaterializedView": "lancelet.dataset",
        "MergeInsertBuilder": "lancelet.dataset",
        "PackedBlobWriter": "lancelet.blob",
        "ScanStatistics": "lancelet.scan.explain:ScanMetrics",
        "Session": "lancelet.dataset",
        "ShardSnapshot": "lancelet.mem_wal",
        "ShardWriter": "lancelet.mem_wal",
        "ShardingField": "lancelet.mem_wal",
        "ShardingSpec": "lancelet.mem_wal",
        "Transaction": "lancelet.dataset",
        "batch_udf": "lancelet.udf",
        "blob_array": "lancelet.blob",
        "blob_field": "lancelet.blob",
        "bytes_read_counter": "lancelet.dataset.maintenance.statistics",
        "dataset": "lancelet.dataset",
        "evaluate_sharding_spec": "lancelet.mem_wal",
        "iops_counter": "lancelet.dataset.maintenance.statistics",
        "json_to_schema": "lancelet.schema",
        "open_view": "lancelet.dataset",
        "sanitize_ts": "lancelet.util",
        "schema_to_json": "lancelet.schema",
        "set_logger": "lancelet.log",
        "simd_info": "lancelet.cpu",
        "sql": "lancelet.dataset.sql.tables",
        "tokenize": "lancelet.index.text.tokenize",
        "write_dataset": "lancelet.dataset",
    },
)

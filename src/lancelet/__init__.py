"""lancelet: the Lance table and file format in Python, with PySpark for what outgrows a machine."""

# ruff: noqa: TC004 - what is public is imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.about import __version__
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.blob import Blob, BlobColumn, BlobFile, blob_array, blob_field
    from lancelet.dataset import (
        DataStatistics,
        FieldStatistics,
        LanceDataset,
        LanceFragment,
        LanceOperation,
        LanceScanner,
        Session,
        Transaction,
        dataset,
        write_dataset,
    )
    from lancelet.dataset.bases import DatasetBasePath
    from lancelet.dataset.counters import bytes_read_counter, iops_counter
    from lancelet.dataset.explanation import CleanupExplanation
    from lancelet.dataset.sql import sql
    from lancelet.fragment import FragmentMetadata
    from lancelet.index.text.tokenize import FtsToken, tokenize
    from lancelet.io.metered import IoCounts as IOStats
    from lancelet.log import set_logger
    from lancelet.ops.cleanup import CleanupCandidateFile, CleanupReferencedBranch, CleanupStats
    from lancelet.query.explain import ScanMetrics as ScanStatistics
    from lancelet.schema import json_to_schema, schema_to_json
    from lancelet.udf import BatchUDF, batch_udf

__all__ = [
    "BatchUDF",
    "Blob",
    "BlobColumn",
    "BlobFile",
    "CleanupCandidateFile",
    "CleanupExplanation",
    "CleanupReferencedBranch",
    "CleanupStats",
    "DataStatistics",
    "DatasetBasePath",
    "FieldStatistics",
    "FragmentMetadata",
    "FtsToken",
    "IOStats",
    "LanceDataset",
    "LanceFragment",
    "LanceOperation",
    "LanceScanner",
    "ScanStatistics",
    "Session",
    "Transaction",
    "__version__",
    "batch_udf",
    "blob_array",
    "blob_field",
    "bytes_read_counter",
    "dataset",
    "iops_counter",
    "json_to_schema",
    "schema_to_json",
    "set_logger",
    "sql",
    "tokenize",
    "write_dataset",
]

import_on_demand(
    __name__,
    {
        "BatchUDF": "lancelet.udf",
        "Blob": "lancelet.blob",
        "BlobColumn": "lancelet.blob",
        "BlobFile": "lancelet.blob",
        "CleanupCandidateFile": "lancelet.ops.cleanup",
        "CleanupExplanation": "lancelet.dataset.explanation",
        "CleanupReferencedBranch": "lancelet.ops.cleanup",
        "CleanupStats": "lancelet.ops.cleanup",
        "DataStatistics": "lancelet.dataset",
        "DatasetBasePath": "lancelet.dataset.bases",
        "FieldStatistics": "lancelet.dataset",
        "FragmentMetadata": "lancelet.fragment",
        "FtsToken": "lancelet.index.text.tokenize",
        "IOStats": "lancelet.io.metered:IoCounts",
        "LanceDataset": "lancelet.dataset",
        "LanceFragment": "lancelet.dataset",
        "LanceOperation": "lancelet.dataset",
        "LanceScanner": "lancelet.dataset",
        "ScanStatistics": "lancelet.query.explain:ScanMetrics",
        "Session": "lancelet.dataset",
        "Transaction": "lancelet.dataset",
        "batch_udf": "lancelet.udf",
        "blob_array": "lancelet.blob",
        "blob_field": "lancelet.blob",
        "bytes_read_counter": "lancelet.dataset.counters",
        "dataset": "lancelet.dataset",
        "iops_counter": "lancelet.dataset.counters",
        "json_to_schema": "lancelet.schema",
        "schema_to_json": "lancelet.schema",
        "set_logger": "lancelet.log",
        "sql": "lancelet.dataset.sql",
        "tokenize": "lancelet.index.text.tokenize",
        "write_dataset": "lancelet.dataset",
    },
)

"""lancelet: the Lance table and file format in Python, with PySpark for what outgrows a machine."""

from lancelet.about import __version__
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

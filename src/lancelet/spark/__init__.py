"""Lance tables in Spark: the format `lance`, and jobs that SQL has no words for."""

from lancelet.ops.jobs.bar import TerminalBar
from lancelet.spark.change import check, cleanup, compact, delete, migrate, update
from lancelet.spark.columns import add_columns
from lancelet.spark.conversion.run import convert
from lancelet.spark.indexing import create_index, optimize_indices
from lancelet.spark.ingest import ingest_files
from lancelet.spark.merging import Merge, merge
from lancelet.spark.running import Finished, Running
from lancelet.spark.scanning import count, scan
from lancelet.spark.searching import search
from lancelet.spark.session import register
from lancelet.spark.writing import Once, write

__all__ = [
    "Finished",
    "Merge",
    "Once",
    "Running",
    "TerminalBar",
    "add_columns",
    "check",
    "cleanup",
    "compact",
    "convert",
    "count",
    "create_index",
    "delete",
    "ingest_files",
    "merge",
    "migrate",
    "optimize_indices",
    "register",
    "scan",
    "search",
    "update",
    "write",
]

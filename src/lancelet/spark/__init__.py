"""Lance tables in Spark: the format `lance`, and jobs that SQL has no words for."""

# ruff: noqa: TC004 - public names are imported lazily; these imports are for type checkers

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.jobs.bar import TerminalBar
    from lancelet.spark.change import check, cleanup, compact, delete, maintain, migrate, update
    from lancelet.spark.columns import (
        RefreshedColumns,
        add_columns,
        join_columns,
        refresh_columns,
    )
    from lancelet.spark.conversion.run import convert
    from lancelet.spark.indexing import create_index, optimize_indices
    from lancelet.spark.ingest import ingest_files
    from lancelet.spark.merging import Merge, merge
    from lancelet.spark.running import Finished, Running
    from lancelet.spark.scanning import count, scan
    from lancelet.spark.searching import nearest_join, search, search_text
    from lancelet.spark.session import register
    from lancelet.spark.sql.names import attach, catalog, detach
    from lancelet.spark.sql.run import sql
    from lancelet.spark.sql.table import LanceTable
    from lancelet.spark.views import refresh_view
    from lancelet.spark.writing import Once, write

__all__ = [
    "Finished",
    "LanceTable",
    "Merge",
    "Once",
    "RefreshedColumns",
    "Running",
    "TerminalBar",
    "add_columns",
    "attach",
    "catalog",
    "check",
    "cleanup",
    "compact",
    "convert",
    "count",
    "create_index",
    "delete",
    "detach",
    "ingest_files",
    "join_columns",
    "maintain",
    "merge",
    "migrate",
    "nearest_join",
    "optimize_indices",
    "refresh_columns",
    "refresh_view",
    "register",
    "scan",
    "search",
    "search_text",
    "sql",
    "update",
    "write",
]

import_on_demand(
    __name__,
    {
        "Finished": "lancelet.spark.running",
        "LanceTable": "lancelet.spark.sql.table",
        "Merge": "lancelet.spark.merging",
        "Once": "lancelet.spark.writing",
        "RefreshedColumns": "lancelet.spark.columns",
        "Running": "lancelet.spark.running",
        "TerminalBar": "lancelet.jobs.bar",
        "add_columns": "lancelet.spark.columns",
        "attach": "lancelet.spark.sql.names",
        "catalog": "lancelet.spark.sql.names",
        "check": "lancelet.spark.change",
        "cleanup": "lancelet.spark.change",
        "compact": "lancelet.spark.change",
        "convert": "lancelet.spark.conversion.run",
        "count": "lancelet.spark.scanning",
        "create_index": "lancelet.spark.indexing",
        "delete": "lancelet.spark.change",
        "detach": "lancelet.spark.sql.names",
        "ingest_files": "lancelet.spark.ingest",
        "join_columns": "lancelet.spark.columns",
        "maintain": "lancelet.spark.change",
        "merge": "lancelet.spark.merging",
        "migrate": "lancelet.spark.change",
        "nearest_join": "lancelet.spark.searching",
        "optimize_indices": "lancelet.spark.indexing",
        "refresh_view": "lancelet.spark.views",
        "refresh_columns": "lancelet.spark.columns",
        "register": "lancelet.spark.session",
        "scan": "lancelet.spark.scanning",
        "search": "lancelet.spark.searching",
        "search_text": "lancelet.spark.searching",
        "sql": "lancelet.spark.sql.run",
        "update": "lancelet.spark.change",
        "write": "lancelet.spark.writing",
    },
)

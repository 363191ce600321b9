"""User-defined functions for new columns. Mirrors the pylance module of this name."""

from lancelet.change.columns.checkpoint import BatchUDFCheckpoint
from lancelet.change.columns.computed import StaleRows
from lancelet.change.columns.refresh import RefreshedRows
from lancelet.change.columns.sources import ComputedColumn
from lancelet.dataset.columns import BatchUDF, batch_udf
from lancelet.dataset.columns import new_columns_of as normalize_transform
from lancelet.dependencies import pandas as pd

__all__ = [
    "BatchUDF",
    "BatchUDFCheckpoint",
    "ComputedColumn",
    "RefreshedRows",
    "StaleRows",
    "batch_udf",
    "normalize_transform",
    "pd",
]

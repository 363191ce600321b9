"""Functions that make columns, under pylance's name for the module."""

from lancelet.dataset.transforms import new_columns_of as normalize_transform
from lancelet.dataset.udf import BatchUDF, batch_udf
from lancelet.dependencies import pandas as pd
from lancelet.ops.columns.checkpoint import BatchUDFCheckpoint

__all__ = ["BatchUDF", "BatchUDFCheckpoint", "batch_udf", "normalize_transform", "pd"]

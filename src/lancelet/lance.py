"""The classes that pylance has in native code, under its name for that module.

Most have a better home too, such as `lancelet.optimize`.
"""

from lancelet.bitmap import Bitmap
from lancelet.dataset.dataset import LanceDataset
from lancelet.fragment import DeletionFile, RowDatasetVersionMeta, RowIdMeta, RowIdSequence
from lancelet.optimize import (
    Compaction,
    CompactionMetrics,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)
from lancelet.schema import LanceSchema

__all__ = [
    "Bitmap",
    "Compaction",
    "CompactionMetrics",
    "CompactionPlan",
    "CompactionTask",
    "DeletionFile",
    "LanceSchema",
    "RewriteResult",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "manifest_needs_migration",
]


def manifest_needs_migration(dataset: LanceDataset) -> bool:
    """Whether the manifest lacks counts of rows, which releases before 0.8.1 left out."""
    return any(fragment.physical_rows is None for fragment in dataset.snapshot.fragments)

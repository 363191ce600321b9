"""Fragments and their metadata, under pylance's name for the module."""

from lancelet.bitmap import Bitmap
from lancelet.dataset.fragment import FragmentSession, LanceFragment
from lancelet.dataset.metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)
from lancelet.dataset.progress import FragmentWriteProgress, NoopFragmentWriteProgress
from lancelet.dataset.row_ids import RowIdSequence
from lancelet.dataset.session import Session
from lancelet.dataset.udf import BatchUDF
from lancelet.dataset.write_fragments import write_fragments
from lancelet.ops.write import MAX_BYTES_PER_FILE as DEFAULT_MAX_BYTES_PER_FILE

__all__ = [
    "DEFAULT_MAX_BYTES_PER_FILE",
    "BatchUDF",
    "Bitmap",
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "FragmentWriteProgress",
    "LanceFragment",
    "NoopFragmentWriteProgress",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "Session",
    "write_fragments",
]

"""Fragments and their metadata. Mirrors the pylance module of this name."""

from lancelet.bitmap import Bitmap
from lancelet.change.write import MAX_BYTES_PER_FILE as DEFAULT_MAX_BYTES_PER_FILE
from lancelet.dataset.columns import BatchUDF
from lancelet.dataset.fragment import FragmentSession, LanceFragment
from lancelet.dataset.history.row_ids import RowIdSequence
from lancelet.dataset.session import Session
from lancelet.dataset.show.progress import FragmentWriteProgress, NoopFragmentWriteProgress
from lancelet.dataset.write.fragments import write_fragments
from lancelet.dataset.write.metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)

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

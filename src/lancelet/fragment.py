"""Fragments and their metadata, under pylance's name for the module."""

from lancelet.dataset.fragment import FragmentSession, LanceFragment
from lancelet.dataset.metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)
from lancelet.dataset.row_ids import RowIdSequence
from lancelet.dataset.write_fragments import write_fragments

__all__ = [
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "LanceFragment",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "write_fragments",
]

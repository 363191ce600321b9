"""Fragments and their metadata, under pylance's name for the module."""

from lancelet.dataset.fragment import LanceFragment
from lancelet.dataset.metadata import (
    DataFile,
    DeletionFile,
    FragmentMetadata,
    RowDatasetVersionMeta,
    RowIdMeta,
)

__all__ = [
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "LanceFragment",
    "RowDatasetVersionMeta",
    "RowIdMeta",
]

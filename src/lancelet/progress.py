"""Progress of long calls. Mirrors the pylance module of this name."""

from lancelet.dataset.show.progress import (
    FileSystemFragmentWriteProgress,
    FragmentWriteProgress,
    IndexProgress,
    NoopFragmentWriteProgress,
    ProgressOption,
)

__all__ = [
    "FileSystemFragmentWriteProgress",
    "FragmentWriteProgress",
    "IndexProgress",
    "NoopFragmentWriteProgress",
    "ProgressOption",
]

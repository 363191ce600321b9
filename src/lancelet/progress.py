"""Being told how far a write is, under pylance's name for the module."""

from lancelet.dataset.progress import FragmentWriteProgress, NoopFragmentWriteProgress

__all__ = ["FragmentWriteProgress", "NoopFragmentWriteProgress"]

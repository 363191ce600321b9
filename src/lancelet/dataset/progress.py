"""Being told how far a write is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lancelet.dataset.metadata import FragmentMetadata


class FragmentWriteProgress(ABC):
    """Is told when a fragment is begun and when it is complete."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Take note that a fragment is begun; it has a file and no rows yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Take note that a fragment is complete."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Takes note of nothing."""

    def begin(self, fragment: FragmentMetadata, **kargs: Any) -> None:
        """Do nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""

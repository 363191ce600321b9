"""Being told how far a write is."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from lancelet.dataset.metadata import FragmentMetadata
from lancelet.io.open import open_folder
from lancelet.values import dataclass

_MARK: Final = ".in_progress"


@dataclass(frozen=True)
class IndexProgress:
    """How far the building of an index is.

    Attributes:
        event: `start`, `progress` or `complete`.
        stage: What is being done.
        completed: How much of it is done, if that is known.
        total: How much there is, if that is known.
        unit: What `completed` and `total` count.
    """

    event: str
    stage: str
    completed: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None if it is not known."""
        if self.completed is None or not self.total:
            return None
        return min(self.completed / self.total, 1.0)


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


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Keeps a note of each fragment in a folder, with a mark while it is being written.

    fragment_0.json           what the fragment is made of
    fragment_0.in_progress    there until it is complete
    """

    PROGRESS_EXT = _MARK

    def __init__(
        self, base_uri: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Keep notes in a folder, with some metadata in each mark."""
        self._store = open_folder(base_uri)
        self._metadata = dict(metadata or {})

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Note a fragment and mark it."""
        del kwargs
        mark = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._store.put(f"fragment_{fragment.id}{_MARK}", json.dumps(mark).encode())
        self._store.put(f"fragment_{fragment.id}.json", json.dumps(fragment.to_json()).encode())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Take the mark away."""
        del kwargs
        self._store.delete(f"fragment_{fragment.id}{_MARK}")


def by_stages(callback: Callable[[IndexProgress], None]) -> Callable[[str, int, int], None]:
    """Return a function that tells of stages as they begin, go on and end, given how far they are.

    >>> events = []
    >>> report = by_stages(events.append)
    >>> report("train", 0, 2), report("train", 2, 2)
    (None, None)
    >>> [event.event for event in events]
    ['start', 'progress', 'progress', 'complete']
    """
    begun: set[str] = set()

    def report(stage: str, completed: int, total: int) -> None:
        if stage not in begun:
            begun.add(stage)
            callback(IndexProgress("start", stage, None, total))
        callback(IndexProgress("progress", stage, completed, total))
        if completed == total:
            callback(IndexProgress("complete", stage, completed, total))

    return report

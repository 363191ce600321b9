"""Progress of long calls: what callbacks get, and what `progress=` of a call means.

progress=True       a bar by rich or tqdm, or lines of text where neither is installed
progress=function   is called with an `IndexProgress` for each event
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from lancelet.dataset.write.metadata import FragmentMetadata
from lancelet.file.arguments import ArgumentTypeError
from lancelet.io.open import open_folder
from lancelet.ops.progress import reporting
from lancelet.values import dataclass

_MARK: Final = ".in_progress"


@dataclass(frozen=True)
class IndexProgress:
    """How far a long call is: the building of an index, a write, a compaction and so on.

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


ProgressOption: TypeAlias = bool | Callable[[IndexProgress], None] | None
"""Whether to show how far a call is, or the function to call instead."""


@contextmanager
def shown(progress: ProgressOption) -> Iterator[Callable[[IndexProgress], None] | None]:
    """Show how far what is done within is, or call a function; yield what is called.

    >>> from lancelet.ops.progress import report
    >>> events = []
    >>> with shown(events.append) as called:
    ...     report("write rows", 10, 10)
    >>> [(event.event, event.fraction) for event in events]
    [('start', None), ('progress', 1.0), ('complete', 1.0)]
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        from lancelet.dataset.show.progress_bars import new_bars  # noqa: PLC0415 - only if asked for

        bars = new_bars()
        try:
            with reporting(by_stages(bars)):
                yield bars
        finally:
            bars.close()
    elif callable(progress):
        with reporting(by_stages(progress)):
            yield progress
    else:
        raise ArgumentTypeError(
            "progress is True, False or a function", found=type(progress).__name__
        )

"""Progress of long calls: callback events, and the `progress=` argument.

The argument is one of:

    progress=True       a bar by rich or tqdm, or lines of text if neither is installed
    progress=function   is called with an `IndexProgress` for each event
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from lancelet.arguments import ArgumentTypeError
from lancelet.change.progress import reporting
from lancelet.dataset.write.metadata import FragmentMetadata
from lancelet.io.open import open_folder
from lancelet.values import dataclass

_IN_PROGRESS: Final = ".in_progress"


@dataclass(frozen=True)
class IndexProgress:
    """The progress of a long call, such as an index build, a write or a compaction.

    Attributes:
        event: `start`, `progress` or `complete`.
        stage: The name of the stage.
        completed: The completed work, if known.
        total: The total work, if known.
        unit: The unit of `completed` and `total`.
    """

    event: str
    stage: str
    completed: int | None = None
    total: int | None = None
    unit: str = ""

    @property
    def fraction(self) -> float | None:
        """The completed fraction, from 0 to 1; None if unknown."""
        if self.completed is None or not self.total:
            return None
        return min(self.completed / self.total, 1.0)


class FragmentWriteProgress(ABC):
    """Receives the start and the completion of each fragment."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Handle the start of a fragment; it has a file and no rows yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Handle the completion of a fragment."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Ignores all events."""

    def begin(self, fragment: FragmentMetadata, **kargs: Any) -> None:
        """Do nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Records each fragment in a folder, with an extra file while it is being written.

    The files are:

        fragment_0.json           the metadata of the fragment
        fragment_0.in_progress    exists until the fragment is complete
    """

    PROGRESS_EXT = _IN_PROGRESS

    def __init__(
        self, base_uri: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Record fragments in a folder, with metadata in each progress file."""
        self._store = open_folder(base_uri)
        self._metadata = dict(metadata or {})

    def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Record a fragment as in progress."""
        del kwargs
        content = {"fragment_id": fragment.id, "metadata": self._metadata}
        self._store.put(f"fragment_{fragment.id}{_IN_PROGRESS}", json.dumps(content).encode())
        self._store.put(f"fragment_{fragment.id}.json", json.dumps(fragment.to_json()).encode())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Delete the progress file."""
        del kwargs
        self._store.delete(f"fragment_{fragment.id}{_IN_PROGRESS}")


def by_stages(callback: Callable[[IndexProgress], None]) -> Callable[[str, int, int], None]:
    """Return a progress function that emits start, progress and complete events per stage.

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
"""Whether to show the progress of a call, or a function that receives its events."""


@contextmanager
def shown(progress: ProgressOption) -> Iterator[Callable[[IndexProgress], None] | None]:
    """Show the progress of the `with` block, or call a function; yield the function called.

    >>> from lancelet.change.progress import report
    >>> events = []
    >>> with shown(events.append) as called:
    ...     report("write rows", 10, 10)
    >>> [(event.event, event.fraction) for event in events]
    [('start', None), ('progress', 1.0), ('complete', 1.0)]
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        from lancelet.dataset.show.progress_bars import new_bars  # noqa: PLC0415 - only on request

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
            "progress must be True, False or a function", found=type(progress).__name__
        )

"""A dataset that another process prefetches.

    with async_dataset(functools.partial(LanceDataset, "t.lance", batch_size=256)) as batches:
        for batch in batches:
            ...

The process is a new one, never a fork, since the threads of a reader do not survive a fork; so the
function that makes the dataset must be picklable. It waits while `queue_size` batches are
pending, and after the last one until it is closed, since it owns the shared memory of tensors in
transit. Its errors are raised here.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lancelet.errors import LanceletError
from lancelet.torch.required import IterableDataset

_POLL_SECONDS: Final = 0.5
_END: Final = "end"
_ITEM: Final = "item"
_FAILED: Final = "failed"


class AsyncDataset(IterableDataset):  # type: ignore[misc]  # PyTorch is an extra, without types here
    """Items of a dataset that another process reads; `close` ends the process."""

    def __init__(
        self, dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
    ) -> None:
        """Start to read at once.

        Args:
            dataset_creator: Makes the dataset, in the other process.
            queue_size: How many items to read ahead.
        """
        super().__init__()
        self._creator = dataset_creator
        self._queue_size = queue_size
        self._process: Any = None
        self._items: Any = None
        self._start()

    def __iter__(self) -> Iterator[Any]:
        """Yield the items; a second time they are read again."""
        if self._process is None:
            self._start()
        while True:
            kind, value = self._next()
            if kind == _ITEM:
                yield value
                continue
            self.close()
            if kind == _FAILED:
                raise LanceletError("the process that reads ahead failed", error=value)
            return

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is not None:
            self._process.terminate()
            self._process.join()
            self._items.close()
        self._process = self._items = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._items = context.Queue(maxsize=self._queue_size)
        self._process = context.Process(
            target=_read, args=(self._creator, self._items), daemon=True
        )
        self._process.start()

    def _next(self) -> tuple[str, Any]:
        """Return what comes next, or that the process is no more."""
        while True:
            is_alive = self._process.is_alive()
            try:
                found: tuple[str, Any] = self._items.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if not is_alive:
                    return _FAILED, f"exit code {self._process.exitcode}"
            else:
                return found


@contextmanager
def async_dataset(
    dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
) -> Iterator[AsyncDataset]:
    """Read a dataset ahead in another process, which ends with the block; see `AsyncDataset`."""
    dataset = AsyncDataset(dataset_creator, queue_size=queue_size)
    try:
        yield dataset
    finally:
        dataset.close()


def _read(creator: Callable[[], Iterable[Any]], items: Any) -> None:
    """Put items into a queue until there are no more, then wait for the end."""
    end = threading.Event()
    try:
        for item in creator():
            items.put((_ITEM, item))
        items.put((_END, None))
        end.wait()
    except Exception as error:
        items.put((_FAILED, f"{type(error).__name__}: {error}"))
        end.wait()
        raise

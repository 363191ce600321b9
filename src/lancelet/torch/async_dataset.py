"""A dataset that is read ahead by another process.

    with async_dataset(functools.partial(LanceDataset, "t.lance", batch_size=256)) as batches:
        for batch in batches:
            ...

The process is spawned, not forked, because the threads of a reader do not survive a fork. The
function that creates the dataset must therefore be picklable. The process blocks while `queue_size`
batches are pending. After the last batch it waits to be closed, because it owns the shared memory
of tensors in transit. Its errors are raised in the calling process.
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
    """Iterates over a dataset that is read by another process; `close` ends the process."""

    def __init__(
        self, dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
    ) -> None:
        """Start the process.

        Args:
            dataset_creator: Creates the dataset in the spawned process.
            queue_size: The number of items to read ahead.
        """
        super().__init__()
        self._creator = dataset_creator
        self._queue_size = queue_size
        self._process: Any = None
        self._items: Any = None
        self._start()

    def __iter__(self) -> Iterator[Any]:
        """Yield the items; each iteration reads the dataset again."""
        if self._process is None:
            self._start()
        while True:
            kind, value = self._next()
            if kind == _ITEM:
                yield value
                continue
            self.close()
            if kind == _FAILED:
                raise LanceletError("the reading process failed", error=value)
            return

    def close(self) -> None:
        """Terminate the process."""
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
        """Return the next message, or a failure if the process has ended."""
        while True:
            is_alive = self._process.is_alive()
            try:
                message: tuple[str, Any] = self._items.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if not is_alive:
                    return _FAILED, f"exit code {self._process.exitcode}"
            else:
                return message


@contextmanager
def async_dataset(
    dataset_creator: Callable[[], Iterable[Any]], *, queue_size: int = 4
) -> Iterator[AsyncDataset]:
    """Read a dataset ahead in another process, within a `with` block; see `AsyncDataset`."""
    dataset = AsyncDataset(dataset_creator, queue_size=queue_size)
    try:
        yield dataset
    finally:
        dataset.close()


def _read(creator: Callable[[], Iterable[Any]], items: Any) -> None:
    """Put all items into a queue, then wait to be terminated."""
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

"""The epochs that the workers of data loaders read, in memory shared with the workers.

A worker that starts an iteration publishes its epoch with a key of the iteration. Workers that find
the key of their iteration read the same epoch; otherwise they read the epoch after all published:

    next       epoch 3, position 40         set by load_state_dict and set_epoch
    worker 0   key 77, epoch 4              has started the second iteration
    worker 1   key 51, epoch 3              finds key 77 when it starts, and reads epoch 4

An entry is one integer, which is written atomically, so no lock is required. Copies of the dataset
in other processes have copies of the epochs, except in workers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.torch.required import require_torch

_WORKERS_MAX: Final = 1024
_KEY_MASK: Final = (1 << 31) - 1
_EPOCH_MASK: Final = (1 << 32) - 1
_NONE: Final = -1
_START_SECONDS_MAX: Final = 600


class SharedEpochs:
    """The next epoch and position of a dataset, and the epochs started by workers."""

    def __init__(self, epoch: int = 0, position: int = 0) -> None:
        self._next = require_torch().zeros(2, dtype=require_torch().int64)
        self._started = require_torch().full((_WORKERS_MAX,), _NONE)
        self._resumed = require_torch().full((_WORKERS_MAX,), _NONE)
        self._skipped = require_torch().zeros(_WORKERS_MAX, dtype=require_torch().int64)
        self._share()
        self.reset(epoch, position)

    def reset(self, epoch: int, position: int) -> None:
        """Set the position of the next iteration."""
        self._next.numpy()[:] = epoch, position
        self._started.fill_(_NONE)

    @property
    def last(self) -> int | None:
        """The last epoch that workers started since `reset`, or None."""
        entries = self._entries
        started = entries[entries != _NONE]
        return int((started & _EPOCH_MASK).max()) if len(started) else None

    @property
    def skipped(self) -> int:
        """The number of samples that workers skipped."""
        return int(self._skipped.sum())

    def add_skipped(self, worker: int, count: int) -> None:
        """Count skipped samples of a worker."""
        self._skipped.numpy()[worker] += count

    def start(self, worker: int, key: int) -> tuple[int, int]:
        """Return the epoch and the position from which a worker reads an iteration.

        Args:
            worker: The worker.
            key: A number that is equal for all workers of the iteration.

        Raises:
            InvalidInputError: The loader has too many workers.
        """
        if worker >= _WORKERS_MAX:
            raise InvalidInputError("too many workers", worker=worker, maximum=_WORKERS_MAX)
        next_epoch, next_position = self._next.tolist()
        entries = self._entries.copy()
        epochs = np.where(entries == _NONE, -1, entries & _EPOCH_MASK)
        # An equal seed may give a later iteration the same key, but not the same epoch.
        is_same = (entries >> 32 == key & _KEY_MASK) & (epochs > epochs[worker])
        if is_same.any():
            epoch = int(epochs[is_same].max())
        else:
            epoch = max(int(epochs.max()) + 1, next_epoch)
        self.publish(worker, key, epoch)
        return epoch, next_position if epoch == next_epoch else 0

    def resume(self, worker: int, workers: int, key: int, epoch: int) -> int:
        """Return the last epoch that any worker resumes, after all of them have published theirs.

        Raises:
            InvalidInputError: Other workers did not start within some minutes.
        """
        resumed = self._resumed.numpy()
        resumed[worker] = _entry(key, epoch)
        deadline = surroundings.monotonic() + _START_SECONDS_MAX
        while (resumed[:workers] >> 32 != key & _KEY_MASK).any():
            if surroundings.monotonic() > deadline:
                raise InvalidInputError("a worker of the loader did not start", workers=workers)
            surroundings.sleep(0.001)
        return int((resumed[:workers] & _EPOCH_MASK).max())

    def publish(self, worker: int, key: int, epoch: int) -> None:
        """Record that a worker reads an epoch."""
        self._entries[worker] = _entry(key, epoch)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._share()

    def _share(self) -> None:
        self._next.share_memory_()
        self._started.share_memory_()
        self._resumed.share_memory_()
        self._skipped.share_memory_()

    @property
    def _entries(self) -> npt.NDArray[np.int64]:
        entries: npt.NDArray[np.int64] = self._started.numpy()
        return entries


def _entry(key: int, epoch: int) -> int:
    return (key & _KEY_MASK) << 32 | epoch

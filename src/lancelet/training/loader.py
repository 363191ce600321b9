"""Loads the batches of a plan for one rank, with prefetching and resumption.

A step of `world_size` ranks and `batch_size` rows takes the next `world_size * batch_size` samples
of the epoch, and each rank reads its slice of them. The remainder is divided evenly, so that every
rank has the same number of steps with the same number of rows.

    10 samples, 2 ranks, batches of 3    rank 0:  0 1 2   6 7        rank 1:  3 4 5   8 9
    11 samples                          rank 0:  0 1 2   6 7 8      rank 1:  3 4 5   9 10 (0)
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, Literal, NotRequired, Protocol, TypedDict, get_args

import numpy as np

from lancelet.config import CPU_THREADS
from lancelet.errors import InvalidInputError
from lancelet.training.convert import Converter, Form, ToBatches
from lancelet.training.decoders import Decoder
from lancelet.training.shuffle import Places
from lancelet.values import dataclass

Uneven = Literal["pad", "cut"]
_BUDGET: Final = 256 << 20
_SIZED: Final = 8
"""How many values of a list are measured."""
_ROWS_PER_READ: Final = 65_536
"""How many rows of small batches are read at once."""
_BYTES_PER_READ: Final = 16 << 20
"""How large they are at most together, by which time a read costs little more than its copies.

Of twice the size, malloc would give memory back to the system, and have to get fresh pages.
"""


class State(TypedDict):
    """The position of a run, from which `load_state_dict` resumes; it is JSON.

    Each worker of a PyTorch loader has its own; `origin` is the position where their shared steps
    began, and `share` the worker, the number of workers and the samples of a step of all ranks.
    """

    version: Any
    table: Any
    seed: int
    epoch: int
    position: int
    plan: str
    origin: NotRequired[int]
    share: NotRequired[list[int]]


class Source(Protocol):
    """Has samples by their position in an epoch: a plan, a mixture, windows or packed sequences."""

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""

    def read(self, places: Places, epoch: int) -> Any:
        """Return the samples at positions, as Arrow or as arrays by name."""

    @property
    def version(self) -> Any:
        """The version that is read."""

    @property
    def table(self) -> Any:
        """The identity of that version, which differs from that of any other table."""

    @property
    def seed(self) -> int:
        """The seed of the order."""

    @property
    def name(self) -> str:
        """Everything else that the order depends on."""

    @property
    def layout(self) -> Any:
        """What samples have, which is equal for the sources of a mixture."""


@dataclass(frozen=True, slots=True)
class Step:
    """The samples of a rank in a step, and the position of all ranks after it."""

    places: Places
    position: int


def steps_of(
    length: int, position: int, batch_size: int, rank: int, world_size: int, uneven: Uneven
) -> Iterator[Step]:
    """Yield the steps of a rank, from a position of an epoch to its end.

    >>> [step.places.tolist() for step in steps_of(11, 0, 3, 1, 2, "pad")]
    [[3, 4, 5], [9, 10, 0]]
    """
    whole = batch_size * world_size
    while position < length:
        left = length - position
        each = batch_size
        if left < whole:
            each = -(-left // world_size) if uneven == "pad" else left // world_size
            if not each:
                return
        first = position + rank * each
        places = np.arange(first, first + each, dtype=np.int64)
        position = min(position + each * world_size, length)
        yield Step(places % length, position)


class Loader:
    """Batches of a source for one rank, an epoch each time it is iterated over.

    Each iteration advances the epoch, unless `set_epoch` sets it. `state_dict` is the position
    after the batches that were yielded; a loader with any world size, batch size or number of
    threads resumes from it. After an iteration that was left early, the next one continues from
    there. In workers of a PyTorch loader, which yield batches ahead of the training loop, it reads
    the whole next epoch instead.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        uneven: Uneven = "pad",
        full_batches: bool = False,
        to: Form | ToBatches = "arrow",
        decode: Mapping[str, str | Decoder] | None = None,
        collate: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        prefetch_bytes: int = _BUDGET,
        num_threads: int | None = None,
        epoch: int = 0,
    ) -> None:
        """Load batches.

        Args:
            source: A plan, a mixture, windows or packed sequences.
            batch_size: The number of samples of a batch.
            rank: The rank of this process.
            world_size: The number of processes.
            uneven: How the last step divides samples among ranks: `pad` repeats some of the first
                samples, `cut` drops some of the last.
            full_batches: Whether to drop a last batch that is smaller than the others.
            to: `arrow`, `numpy`, `torch` or `jax`; or a function of the rows of several batches and
                how many each has, that returns the batches, which threads call.
            decode: A function by column that converts each value, or the name of one, such as
                `image` (see `lancelet.training.decoders`). Called by threads.
            collate: Converts each batch to the yielded value. Called by threads.
            pin_memory: Whether tensors are copied to pinned memory, for transfers to a GPU; where
                there is no CUDA they stay where they are.
            prefetch_bytes: The maximum number of bytes to prefetch, as read or as decoded,
                whichever is more; one batch always fits.
            num_threads: The number of threads that read, by default the number of cores.
            epoch: The first epoch.

        Raises:
            InvalidInputError: An argument is out of range or unknown.
        """
        if batch_size < 1 or world_size < 1 or not 0 <= rank < world_size:
            raise InvalidInputError(
                "a batch has at least one sample, and a rank is below the world size",
                batch_size=batch_size,
                rank=rank,
                world_size=world_size,
            )
        if prefetch_bytes < 0 or epoch < 0 or (num_threads is not None and num_threads < 1):
            raise InvalidInputError(
                "at least one thread reads, and neither an epoch nor a budget is negative",
                num_threads=num_threads,
                prefetch_bytes=prefetch_bytes,
                epoch=epoch,
            )
        if uneven not in get_args(Uneven):
            raise InvalidInputError("unknown uneven", uneven=uneven, known=list(get_args(Uneven)))
        self._source = source
        self._batch_size = batch_size
        self._rank, self._world_size, self._uneven = rank, world_size, uneven
        self._full_batches = full_batches
        self._convert = Converter(to, decode or {}, collate, pin_memory)
        self._budget = prefetch_bytes
        self._threads = num_threads or CPU_THREADS
        self._epoch, self._position = epoch, 0
        self._origin = 0
        self._workers, self._is_worker = (0, 1), False
        self._is_abandoned = False
        self._resumed: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        length, whole = len(self._source), self._batch_size * self._world_size
        left = length % whole
        if self._full_batches:
            return length // whole
        enough = left if self._uneven == "pad" else left // self._world_size
        return length // whole + bool(enough)

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one between iterations."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch; the epoch that is being read keeps its position.

        So a program that sets the epoch before each iteration, as samplers of PyTorch require,
        still resumes in the middle of one.
        """
        if epoch != self._epoch:
            self._epoch, self._position, self._origin, self._resumed = epoch, 0, 0, ()
            self._is_abandoned = False

    def share(self, worker: int, workers: int) -> None:
        """Yield only the batches of a worker: loaders of PyTorch take one from each in turn.

        Raises:
            InvalidInputError: Tensors are to be pinned, which a worker cannot.
        """
        if self._convert.pin_memory:
            raise InvalidInputError("workers cannot pin tensors; give pin_memory to the DataLoader")
        self._workers, self._is_worker = (worker, workers), True

    def state_dict(self) -> State:
        """Return the position after the batches that were yielded."""
        source = self._source
        state = State(
            version=source.version,
            table=source.table,
            seed=source.seed,
            epoch=self._epoch,
            position=self._position,
            plan=source.name,
        )
        if self._workers[1] > 1:
            state["origin"], state["share"] = self._origin, self._share()
        return state

    def _share(self) -> list[int]:
        return [*self._workers, self._batch_size * self._world_size]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume a run from its position.

        Raises:
            InvalidInputError: The run read another version or table, or had another order.
        """
        own: Mapping[str, Any] = {**self.state_dict()}
        # States of earlier releases do not name the table.
        for name in [each for each in ("version", "table", "seed", "plan") if each in state]:
            if state[name] != own[name]:
                raise InvalidInputError(
                    "the state is of another plan; create the plan with the arguments of that run",
                    differs=name,
                    found=state[name],
                    expected=own[name],
                )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._origin = int(state.get("origin", self._position))
        self._resumed = tuple(state.get("share", ()))
        self._is_abandoned = False

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining batches of the epoch.

        Raises:
            InvalidInputError: The state of one of several workers was loaded, and batches are
                shared otherwise now.
        """
        if self._resumed and self._resumed != tuple(self._share()):
            raise InvalidInputError(
                "the state of a worker resumes only with as many workers, ranks and samples of a "
                "batch; load the state of the whole StatefulDataLoader into the dataset before a "
                "loader is made of it",
                found=self._resumed,
                expected=self._share(),
            )
        if self._is_abandoned:
            # Batches may have been yielded ahead and discarded. Each worker is at another position
            # and may have ended the epoch, so what they have in common is the next epoch.
            self.set_epoch(self._epoch + 1)
        epoch = self._epoch
        self._is_abandoned = self._is_worker
        steps = self._steps()
        steps_max = max(1, _ROWS_PER_READ // self._batch_size)
        for step, batch in _ahead(
            steps, lambda run: self._load(run, epoch), self._threads, self._budget, steps_max
        ):
            self._position = step.position
            yield batch
        self.set_epoch(epoch + 1)

    def _steps(self) -> Iterator[Step]:
        worker, workers = self._workers
        found = steps_of(
            len(self._source),
            self._position,
            self._batch_size,
            self._rank,
            self._world_size,
            self._uneven,
        )
        whole = self._batch_size * self._world_size
        for number, step in enumerate(found, (self._position - self._origin) // whole):
            is_full = len(step.places) == self._batch_size
            if number % workers == worker and (is_full or not self._full_batches):
                yield step

    def _load(self, run: Sequence[Step], epoch: int) -> tuple[list[Any], int]:
        """Return the converted batches of steps, and the bytes of them or of their rows."""
        rows = self._source.read(np.concatenate([step.places for step in run]), epoch)
        batches = self._convert(rows, [len(step.places) for step in run])
        return batches, max(size_of(rows), size_of(batches))


def size_of(values: Any) -> int:
    """Return the approximate size of samples in memory; of a list, by a few of its values."""
    if hasattr(values, "nbytes"):
        return int(values.nbytes)
    if isinstance(values, Mapping):
        return sum(map(size_of, values.values()))
    if isinstance(values, list | tuple) and values:
        some = values[:: -(-len(values) // _SIZED)]
        return sum(map(size_of, some)) * len(values) // len(some)
    return sys.getsizeof(values)


def _ahead(
    steps: Iterator[Step],
    load: Callable[[Sequence[Step]], tuple[list[Any], int]],
    threads: int,
    budget: int,
    steps_max: int,
) -> Iterator[tuple[Step, Any]]:
    """Yield steps with their batches in order, while threads prefetch the next ones.

    Steps are read in runs, since many rows cost little more than few: one step at first, so that it
    comes soon, then twice as many each time. The number in flight fits the budget if each is as
    large as the largest so far.
    """
    waiting: deque[tuple[list[Step], Future[tuple[list[Any], int]]]] = deque()
    largest, together = 0.0, 1
    pool = ThreadPoolExecutor(threads, thread_name_prefix="lancelet-training")
    try:
        while True:
            # The first batch says how large batches are; until then one thread reads ahead.
            most = 2
            if largest:
                room = max(1, int(budget / largest))
                enough = min(steps_max, int(_BYTES_PER_READ / largest), room // (2 * threads))
                together = max(1, min(2 * together, enough))
                most = max(1, min(2 * threads, room // together))
            while len(waiting) < most and (run := list(islice(steps, together))):
                waiting.append((run, pool.submit(load, run)))
            if not waiting:
                return
            run, future = waiting.popleft()
            batches, size = future.result()
            largest = max(largest, size / len(run))
            del future
            yield from zip(run, batches, strict=True)
    finally:
        for _, future in waiting:
            future.cancel()
        pool.shutdown(wait=True)

"""Loads the batches of a plan for one rank, with prefetching and resumption.

Each step consumes the next `world_size * batch_size` samples of the epoch, and each rank reads its
slice of them. The remainder is divided evenly, so all ranks have the same number of steps and rows.

    10 samples, 2 ranks, batches of 3    rank 0:  0 1 2   6 7        rank 1:  3 4 5   8 9
    11 samples                          rank 0:  0 1 2   6 7 8      rank 1:  3 4 5   9 10 (0)
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    Protocol,
    TypedDict,
    get_args,
    runtime_checkable,
)

import numpy as np

from lancelet import surroundings
from lancelet.config import CPU_THREADS
from lancelet.errors import InvalidInputError
from lancelet.file.pool import decoding_inline
from lancelet.kernels import RecycledMemory, recycling
from lancelet.training.arguments import check_booleans, check_integers, is_integer
from lancelet.training.convert import Converter, Form, ToBatches, Undecodable
from lancelet.training.decoders import Decoder
from lancelet.training.shuffle import Positions
from lancelet.values import dataclass

Uneven = Literal["pad", "cut"]
_PREFETCH_BYTES: Final = 256 << 20
_NAME_LENGTH_MAX: Final = 256
_MEASURED_VALUES: Final = 8
"""The number of values of a list that are measured."""
_ROWS_PER_READ: Final = 65_536
"""The maximum number of rows per read of small batches."""
_BYTES_PER_READ: Final = 32 << 20
"""The maximum bytes per read: several batches amortize the fixed cost of a read per fragment."""
_RECYCLED_BYTES: Final = 128 << 20
"""The maximum free memory of previous reads that is retained for the next ones."""


class State(TypedDict):
    """The position of a run, for `load_state_dict`; at most 1 KB of JSON.

    Each worker of a PyTorch loader has a separate state. `origin` is the position of the first step
    of the iteration, negative if it was in an earlier epoch. `share` contains the worker, the
    number of workers and the samples per step of all ranks.
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
    """A source of samples by position: a plan, a mixture, windows or packed sequences."""

    def __len__(self) -> int:
        """Return the number of samples per epoch."""

    def read(self, positions: Positions, epoch: int) -> Any:
        """Return the samples at positions, as an Arrow table or as arrays by name."""

    def locate(self, position: int, epoch: int) -> Mapping[str, Any]:
        """Return the row of a sample, for error messages."""

    @property
    def version(self) -> Any:
        """The version of the dataset."""

    @property
    def table(self) -> Any:
        """An identifier of the version that is unique across datasets."""

    @property
    def seed(self) -> int:
        """The seed of the order."""

    @property
    def name(self) -> str:
        """A description of all further parameters of the order."""

    @property
    def layout(self) -> Any:
        """The structure of samples; equal for all sources of a mixture."""


@runtime_checkable
class SupportsStoredRows(Protocol):
    """A source that can return rows in storage order, which the loader then orders."""

    def read_stored(self, positions: Positions, epoch: int) -> Any:
        """Return the samples at positions, as an Arrow table or in storage order."""


@dataclass(frozen=True, slots=True)
class Step:
    """The samples of a rank in a step, and the position after the step."""

    positions: Positions
    position: int


def iter_steps(
    length: int, position: int, batch_size: int, rank: int, world_size: int, uneven: Uneven
) -> Iterator[Step]:
    """Yield the steps of a rank from a position to the end of the epoch.

    >>> [step.positions.tolist() for step in iter_steps(11, 0, 3, 1, 2, "pad")]
    [[3, 4, 5], [9, 10, 0]]
    """
    whole = batch_size * world_size
    while position < length:
        remaining = length - position
        rank_rows = batch_size
        if remaining < whole:
            rank_rows = -(-remaining // world_size) if uneven == "pad" else remaining // world_size
            if not rank_rows:
                return
        first = position + rank * rank_rows
        positions = np.arange(first, first + rank_rows, dtype=np.int64)
        position = min(position + rank_rows * world_size, length)
        yield Step(positions % length, position)


class Loader:
    """An iterable of batches for one rank; each iteration yields an epoch.

    Each iteration advances the epoch, unless `set_epoch` sets it. `state_dict` returns the position
    after the yielded batches; loaders with any world size, batch size or number of threads can
    resume from it. If an iteration is not exhausted, the next one continues it, and ends it.
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
        ragged: Sequence[str] = (),
        undecodable: Undecodable = "raise",
        prefetch_bytes: int = _PREFETCH_BYTES,
        num_threads: int | None = None,
        epoch: int = 0,
    ) -> None:
        """Create a loader.

        Args:
            source: A plan, a mixture, windows or packed sequences.
            batch_size: The number of samples per batch.
            rank: The rank of this process.
            world_size: The number of processes.
            uneven: How to divide the last samples among ranks: `pad` repeats some of the first
                samples, `cut` drops some of the last.
            full_batches: Whether to drop incomplete batches.
            to: `arrow`, `numpy`, `torch` or `jax`; or a function that takes the rows and sizes of
                several batches and returns the batches. Called by threads.
            decode: A function per column that converts each value, or the name of a decoder such
                as `image` (see `lancelet.training.decoders`). Called by threads.
            collate: Converts each batch to the yielded value. Called by threads.
            pin_memory: Whether to copy tensors to pinned memory for transfers to a GPU; ignored
                without CUDA.
            ragged: The columns of lists, binary values or strings that become one array of values
                and an array of offsets; see `Ragged`.
            undecodable: What to do if `decode` fails: `raise` an error with the row and the column,
                `skip` the sample, or use a replacement, given by column. Skipped samples make
                batches smaller, but all ranks have the same steps; `skipped` counts them.
            prefetch_bytes: The maximum number of bytes to prefetch, before or after decoding; one
                batch is always permitted.
            num_threads: The number of reading threads; the number of cores by default.
            epoch: The first epoch.

        Raises:
            InvalidInputError: An argument is out of range or unknown.
        """
        check_integers(batch_size=batch_size, rank=rank, world_size=world_size, epoch=epoch)
        check_integers(prefetch_bytes=prefetch_bytes)
        check_integers(allow_none=True, num_threads=num_threads)
        check_booleans(full_batches=full_batches, pin_memory=pin_memory)
        if batch_size < 1 or world_size < 1 or not 0 <= rank < world_size:
            raise InvalidInputError(
                "batch_size must be at least 1, and rank must be less than world_size",
                batch_size=batch_size,
                rank=rank,
                world_size=world_size,
            )
        if prefetch_bytes < 0 or epoch < 0 or (num_threads is not None and num_threads < 1):
            raise InvalidInputError(
                "num_threads must be at least 1, and prefetch_bytes and epoch at least 0",
                num_threads=num_threads,
                prefetch_bytes=prefetch_bytes,
                epoch=epoch,
            )
        if uneven not in get_args(Uneven):
            raise InvalidInputError(
                "unknown value of `uneven`", uneven=uneven, expected=list(get_args(Uneven))
            )
        self._source = source
        self._batch_size = batch_size
        self._rank, self._world_size, self._uneven = rank, world_size, uneven
        self._full_batches = full_batches
        self._convert = Converter(to, decode or {}, collate, pin_memory, tuple(ragged), undecodable)
        self.skipped = 0
        self._prefetch_bytes = prefetch_bytes
        self._threads = num_threads or CPU_THREADS
        self._epoch, self._position = epoch, 0
        self._origin = 0
        self._workers = (0, 1)
        self._finish: Callable[[Any], Any] | None = None
        self._resumed: tuple[int, ...] = ()
        self._memory = RecycledMemory(_RECYCLED_BYTES)
        self._iterations = 0

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._count_steps(len(self._source))

    def _count_steps(self, samples: int) -> int:
        """Return the number of steps for the last samples of an epoch."""
        whole = self._batch_size * self._world_size
        padding = self._world_size - 1 if self._uneven == "pad" else 0
        rank_rows = (samples % whole + padding) // self._world_size
        rows_min = self._batch_size if self._full_batches else 1
        return samples // whole + (rank_rows >= rows_min)

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one between iterations."""
        return self._epoch

    @property
    def position(self) -> int:
        """The number of samples of the epoch that all ranks have consumed."""
        return self._position

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._world_size

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch; has no effect for the current epoch.

        A program that sets the epoch before each iteration, as required by PyTorch samplers, can
        therefore resume in the middle of an epoch.
        """
        check_integers(epoch=epoch)
        if epoch < 0:
            raise InvalidInputError("epoch must be at least 0", epoch=epoch)
        if epoch != self._epoch:
            self.move_to(epoch, 0)

    def move_to(self, epoch: int, position: int) -> None:
        """Continue at a position of an epoch."""
        self._epoch, self._position, self._origin, self._resumed = epoch, position, position, ()

    def finish_epoch(self) -> None:
        """Continue with the next epoch; workers continue to alternate from the last step."""
        whole = self._batch_size * self._world_size
        before = max(-self._origin, 0) // whole  # steps of earlier epochs
        steps = before + self._count_steps(len(self._source) - max(self._origin, 0))
        self._epoch, self._position, self._origin = self._epoch + 1, 0, -steps * whole

    def set_rank(self, rank: int, world_size: int) -> None:
        """Change the rank and the number of ranks; the next iteration uses them."""
        self._rank, self._world_size = rank, world_size

    def share(
        self, worker: int, workers: int, *, finish: Callable[[Any], Any] | None = None
    ) -> None:
        """Yield only the batches of a worker; PyTorch loaders alternate between workers.

        Args:
            worker: The worker.
            workers: The number of workers.
            finish: Converts each batch for the transfer to another process. Called by threads.

        Raises:
            InvalidInputError: `pin_memory` is set, which workers do not support.
        """
        if self._convert.pin_memory:
            raise InvalidInputError("workers cannot pin tensors; pass pin_memory to the DataLoader")
        self._workers = (worker, workers)
        self._finish = finish

    def state_dict(self) -> State:
        """Return the position after the yielded batches."""
        source = self._source
        state = State(
            version=source.version,
            table=source.table,
            seed=int(source.seed),
            epoch=self._epoch,
            position=self._position,
            plan=_short(source.name),
        )
        if self._workers[1] > 1:
            state["origin"], state["share"] = self._origin, self._share()
        return state

    def _share(self) -> list[int]:
        return [*self._workers, self._batch_size * self._world_size]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume a run from its state.

        Raises:
            InvalidInputError: The version, table or order of the run differs.
        """
        missing = (
            sorted({"version", "seed", "epoch", "position", "plan"} - state.keys())
            if isinstance(state, Mapping)
            else ["all"]
        )
        if missing:
            raise InvalidInputError(
                "not the state of a loader; pass the result of `state_dict()`",
                type=type(state).__name__,
                missing=missing,
            )
        own: Mapping[str, Any] = {**self.state_dict()}
        # States of earlier releases do not contain the table.
        for name in [each for each in ("version", "table", "seed", "plan") if each in state]:
            if state[name] != own[name] and not (
                name == "plan" and state[name] == self._source.name
            ):
                raise InvalidInputError(
                    "the state belongs to a different plan; use the arguments of that plan",
                    differs=name,
                    found=state[name],
                    expected=own[name],
                )
        counts = {"epoch": state["epoch"], "position": state["position"]}
        for name, value in counts.items():
            if not is_integer(value) or value < 0:
                raise InvalidInputError(
                    f"the {name} of a state must be an integer of at least 0", found=value
                )
        if state["position"] > len(self._source):
            raise InvalidInputError(
                "the position of a state is beyond the end of the epoch",
                found=state["position"],
                length=len(self._source),
            )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._origin = int(state.get("origin", self._position))
        self._resumed = tuple(state.get("share", ()))

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining batches of the epoch.

        Raises:
            InvalidInputError: The state of one of several workers was loaded, and the batches are
                now distributed differently; or another iteration has started.
        """
        if self._resumed and self._resumed != tuple(self._share()):
            raise InvalidInputError(
                "the state of a worker requires the same number of workers and samples per step; "
                "load the state of the whole StatefulDataLoader into the dataset before creating "
                "a loader",
                found=self._resumed,
                expected=self._share(),
            )
        epoch = self._epoch
        at = epoch, self._position
        self._iterations += 1
        iteration = self._iterations
        steps = self._steps()
        steps_max = max(1, _ROWS_PER_READ // self._batch_size)

        def load(run: Sequence[Step]) -> tuple[list[tuple[Any, int]], int]:
            with recycling(self._memory), decoding_inline():
                return self._load(run, epoch)

        for step, (batch, skipped) in _prefetch(
            steps,
            load,
            self._threads,
            self._prefetch_bytes,
            steps_max,
        ):
            if iteration != self._iterations:
                raise InvalidInputError(
                    "another iteration of the loader has started; create a loader for each of "
                    "several simultaneous iterations",
                    iteration=iteration,
                    started=self._iterations,
                )
            self.skipped += skipped
            if at == (self._epoch, self._position):  # not moved during the iteration
                self._position = step.position
                if not self._count_steps(len(self._source) - step.position):
                    # Callers that count batches may not exhaust the iteration.
                    self.finish_epoch()
                at = self._epoch, self._position
            yield batch
        if at == (self._epoch, self._position):
            self.move_to(epoch + 1, 0)

    def _steps(self) -> Iterator[Step]:
        worker, workers = self._workers
        steps = iter_steps(
            len(self._source),
            self._position,
            self._batch_size,
            self._rank,
            self._world_size,
            self._uneven,
        )
        whole = self._batch_size * self._world_size
        for number, step in enumerate(steps, (self._position - self._origin) // whole):
            is_full = len(step.positions) == self._batch_size
            if number % workers == worker and (is_full or not self._full_batches):
                yield step

    def _load(self, run: Sequence[Step], epoch: int) -> tuple[list[tuple[Any, int]], int]:
        """Return the batches of steps with their skipped samples, and the size in memory."""
        source, positions = self._source, np.concatenate([step.positions for step in run])
        read = source.read
        if isinstance(source, SupportsStoredRows) and self._convert.accepts_stored:
            read = source.read_stored
        rows = read(positions, epoch)
        batches = self._convert(
            rows,
            [len(step.positions) for step in run],
            lambda index: source.locate(int(positions[index]), epoch),
        )
        if self._finish is not None:
            batches = [(self._finish(batch), skipped) for batch, skipped in batches]
        return batches, max(size_of(rows), size_of([batch for batch, _ in batches]))


def _short(name: str) -> str:
    """Return a name, or a digest of a long one, to limit the size of states."""
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    return "blake2b:" + hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def size_of(values: Any) -> int:
    """Estimate the size of samples in memory; lists are sampled."""
    if hasattr(values, "nbytes"):
        return int(values.nbytes)
    if isinstance(values, Mapping):
        return sum(map(size_of, values.values()))
    if isinstance(values, list | tuple) and values:
        some = values[:: -(-len(values) // _MEASURED_VALUES)]
        return sum(map(size_of, some)) * len(values) // len(some)
    return sys.getsizeof(values)


def _prefetch(
    steps: Iterator[Step],
    load: Callable[[Sequence[Step]], tuple[list[Any], int]],
    threads: int,
    budget: int,
    steps_max: int,
) -> Iterator[tuple[Step, Any]]:
    """Yield steps with their batches in order, while threads prefetch further batches.

    Several steps are read together to amortize the fixed cost of reads. The first read has one
    step, for a low latency; the number then doubles with each read. The number of reads in flight
    is limited by the budget, assuming the largest size so far.
    """
    pending: deque[tuple[list[Step], Future[tuple[list[Any], int]]]] = deque()
    largest, run_steps = 0.0, 1
    pool = surroundings.executor(threads, "lancelet-training")
    try:
        while True:
            # Batch sizes are unknown until the first read completes; prefetch one read until then.
            in_flight_max = 2
            if largest:
                fitting_steps = max(1, int(budget / largest))
                run_steps_max = min(
                    steps_max, int(_BYTES_PER_READ / largest), fitting_steps // (2 * threads)
                )
                run_steps = max(1, min(2 * run_steps, run_steps_max))
                in_flight_max = max(1, min(2 * threads, fitting_steps // run_steps))
            while len(pending) < in_flight_max and (run := list(islice(steps, run_steps))):
                pending.append((run, pool.submit(load, run)))
            if not pending:
                return
            run, future = pending.popleft()
            batches, size = future.result()
            largest = max(largest, size / len(run))
            del future
            yield from zip(run, batches, strict=True)
    finally:
        for _, future in pending:
            future.cancel()
        pool.shutdown(wait=True)

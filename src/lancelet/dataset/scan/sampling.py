"""Samplers for training: batches that are sharded over processes, shuffled, and resumable.

    10 batches of a table, 2 processes      rank 0: 0 2 4 6 8      rank 1: 1 3 5 7 9
    shuffled by seed 7, epoch 1             rank 0: 6 0 8 2 4      reproducible
    resumed after 2 batches                 rank 0:     8 2 4      skipped batches are not read

The plan depends only on the manifest, so all processes compute the same plan without
communication, and each reads its shard. With a filter, the matching rows are unknown in advance:
each process reads all of them and returns every n-th.
"""

from __future__ import annotations

import math
import os
import random
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappush, heappushpop
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import pyarrow as pa

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import dataset
from lancelet.encodings.take import take_from_batch
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.batches import rebatch
from lancelet.io.spill_folder import SpillFolder
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.fragment import LanceFragment

Columns: TypeAlias = "Sequence[str] | Mapping[str, str] | None"

_BATCH_ROWS: Final = 128
_SHUFFLED_BATCHES: Final = 256
"""The size of the shuffle buffer in batches, for scans that cannot be planned."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of the work: every `world_size`-th item, starting at `rank`."""

    rank: int
    world_size: int

    def __post_init__(self) -> None:
        """Raise if the rank is out of range."""
        if not 0 <= self.rank < self.world_size:
            raise InvalidInputError(
                "the rank must be less than the world size",
                rank=self.rank,
                world_size=self.world_size,
            )


def shard_of_torch() -> Shard:
    """Return the shard of this process in a distributed PyTorch run."""
    try:
        import torch.distributed as processes  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("this requires PyTorch; install `lancelet[torch]`") from error
    return Shard(int(processes.get_rank()), int(processes.get_world_size()))


class Sampler(ABC):
    """Selects rows of a dataset and their order."""

    @abstractmethod
    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = _BATCH_ROWS,
        columns: Columns = None,
        filter: str | None = None,  # noqa: A002 - pylance's name
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches.

        Args:
            dataset: The dataset.
            *args: Arguments of custom samplers.
            batch_size: The maximum number of rows per batch.
            columns: The columns to read.
            filter: A SQL condition on the rows.
            batch_readahead: Has no effect: read-ahead is limited in bytes.
            with_row_id: Whether to read row ids.
            **kwargs: Arguments of custom samplers; `skip_rows` is the number of rows to skip.
        """


class FragmentSampler(Sampler):
    """Selects fragments and reads them sequentially."""

    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = _BATCH_ROWS,
        columns: Columns = None,
        filter: str | None = None,  # noqa: A002 - pylance's name
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        skip_rows: int = 0,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the fragments; see `Sampler`."""
        del batch_readahead
        fragments = list(self.iter_fragments(dataset, *args, **kwargs))
        if not fragments:
            return
        yield from dataset.scanner(
            batch_size=batch_size,
            columns=columns,
            filter=filter,
            with_row_id=with_row_id,
            fragments=fragments,
            offset=skip_rows,
        ).to_batches()

    @abstractmethod
    def iter_fragments(
        self, ds: LanceDataset, *args: Any, **kwargs: Any
    ) -> Iterator[LanceFragment]:
        """Yield the fragments in reading order."""


class FullScanSampler(FragmentSampler):
    """Reads the whole dataset in order."""

    def iter_fragments(
        self, ds: LanceDataset, *_args: Any, **_kwargs: Any
    ) -> Iterator[LanceFragment]:
        """Yield all fragments."""
        yield from ds.get_fragments()


class _Sharded:
    """The shard of a process, and the order of an epoch."""

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        """Select shard `rank` of `world_size`, optionally in random order."""
        self._shard = Shard(rank, world_size)
        self._randomize = randomize
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the random order."""
        self._epoch = epoch

    @classmethod
    def from_torch(cls, randomize: bool = False, seed: int = 0) -> Self:
        """Return the sampler of this process in a distributed PyTorch run."""
        shard = shard_of_torch()
        return cls(shard.rank, shard.world_size, randomize, seed)


class ShardedFragmentSampler(_Sharded, FragmentSampler):
    """Assigns whole fragments to processes; efficient if fragments have equal sizes."""

    def iter_fragments(
        self, ds: LanceDataset, *_args: Any, **_kwargs: Any
    ) -> Iterator[LanceFragment]:
        """Yield the fragments of this process."""
        fragments = ds.get_fragments()
        if self._randomize:
            random.Random(self._seed + self._epoch).shuffle(fragments)  # noqa: S311 - reproducible
        yield from fragments[self._shard.rank :: self._shard.world_size]


class ShardedBatchSampler(_Sharded, Sampler):
    """Assigns batches to processes, which balances the rows for fragments of any size.

    With a filter, every process reads all rows and returns its batches, shuffled within a buffer.
    """

    def __call__(
        self,
        dataset: LanceDataset,
        *args: Any,
        batch_size: int = _BATCH_ROWS,
        columns: Columns = None,
        filter: str | None = None,  # noqa: A002 - pylance's name
        batch_readahead: int = 16,
        with_row_id: bool | None = None,
        skip_rows: int = 0,
        **kwargs: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of this process; see `Sampler`."""
        del args, batch_readahead, kwargs
        scan_options = {"columns": columns, "with_row_id": bool(with_row_id)}
        if filter is None:
            return self._planned(dataset, batch_size, skip_rows, scan_options)
        batches = self._filtered(dataset, batch_size, {**scan_options, "filter": filter})
        return without_first(batches, skip_rows)

    def ranges(self, num_rows: int, batch_size: int) -> list[range]:
        """Return the row ranges of the batches of this process, in the order of this epoch."""
        step = self._shard.world_size * batch_size
        starts = range(self._shard.rank * batch_size, num_rows, step)
        found = [range(start, min(start + batch_size, num_rows)) for start in starts]
        if self._randomize:
            self._random().shuffle(found)
        return found

    def _planned(
        self, dataset: LanceDataset, batch_size: int, skip_rows: int, scan_options: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        for rows in self.ranges(dataset.count_rows(), batch_size):
            left = rows[skip_rows:]
            skip_rows = max(0, skip_rows - len(rows))
            if left:
                table = dataset.to_table(offset=left.start, limit=len(left), **scan_options)
                yield table.combine_chunks().to_batches()[0]

    def _filtered(
        self, dataset: LanceDataset, batch_size: int, scan_options: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        selected = rebatch(
            self._every_nth(dataset.scanner(**scan_options).to_batches()), batch_size
        )
        if not self._randomize:
            yield from selected
            return
        chance = self._random()
        buffer: list[tuple[float, int, pa.RecordBatch]] = []
        for number, batch in enumerate(selected):
            entry = (chance.random(), number, batch)
            if len(buffer) < _SHUFFLED_BATCHES:
                heappush(buffer, entry)
            else:
                yield heappushpop(buffer, entry)[2]
        for *_, batch in sorted(buffer, key=lambda entry: entry[:2]):
            yield batch

    def _every_nth(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of this process, counted over all batches."""
        seen = 0
        step = self._shard.world_size
        for batch in batches:
            first = (self._shard.rank - seen) % step
            seen += batch.num_rows
            if first < batch.num_rows:
                yield take_from_batch(batch, pa.array(range(first, batch.num_rows, step)))

    def _random(self) -> random.Random:
        return random.Random(self._seed + self._epoch)  # noqa: S311 - reproducible


class ShardedFixedBatchSampler(ShardedBatchSampler):
    """Assigns contiguous ranges of rows to processes, as lists of row indices.

    Use it as `batch_sampler` of PyTorch, for a dataset that does not change.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        randomize: bool = False,
        seed: int = 0,
        batch_size: int = 0,
        total_num_rows: int = 0,
    ) -> None:
        """Plan batches of a fixed size over a number of rows."""
        super().__init__(rank, world_size, randomize, seed)
        self._rows = total_num_rows
        self._batch_size = batch_size

    def __len__(self) -> int:
        """Return the maximum number of batches per process."""
        if not self._rows or not self._batch_size:
            return 0
        return math.ceil(math.ceil(self._rows / self._shard.world_size) / self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the row indices of each batch."""
        if not self._batch_size:
            return
        share = math.ceil(self._rows / self._shard.world_size)
        first = self._shard.rank * share
        stop = min(first + share, self._rows)
        batches = [
            list(range(start, min(start + self._batch_size, stop)))
            for start in range(first, stop, self._batch_size)
        ]
        if self._randomize:
            self._random().shuffle(batches)
        yield from batches

    @staticmethod
    def from_torch(  # type: ignore[override]  # pylance's signature
        batch_size: int, total_num_rows: int, randomize: bool = False, seed: int = 0
    ) -> ShardedFixedBatchSampler:
        """Return the sampler of this process in a distributed PyTorch run."""
        shard = shard_of_torch()
        return ShardedFixedBatchSampler(
            shard.rank, shard.world_size, randomize, seed, batch_size, total_num_rows
        )


def without_first(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches after skipping the first `num_rows` rows.

    >>> rows = pa.record_batch({"a": [1, 2, 3]})
    >>> [batch["a"].to_pylist() for batch in without_first(iter([rows, rows]), 4)]
    [[2, 3]]
    """
    for batch in batches:
        if num_rows >= batch.num_rows:
            num_rows -= batch.num_rows
        else:
            yield batch.slice(num_rows)
            num_rows = 0


_SHARD_BATCH_ROWS: Final = 1024 * 10


class ShardedBatchIterator:
    """Yields the batches of one shard of a dataset. Deprecated: use a sampler."""

    def __init__(
        self,
        data: str | os.PathLike[str] | LanceDataset,
        rank: int,
        world_size: int,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_size: int = _SHARD_BATCH_ROWS,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> None:
        """Read shard `rank` of `world_size`.

        Args:
            data: A dataset or its URI.
            rank: The number of the shard, from 0.
            world_size: The number of shards.
            columns: The columns to read, by default all.
            batch_size: The maximum number of rows per batch.
            granularity: Whether to shard by fragments or by batches.
            batch_readahead: Has no effect: read-ahead is limited in bytes.
            with_row_id: Whether to return a column `_rowid`; requires sharding by fragments.
        """
        warnings.warn(
            "ShardedBatchIterator is deprecated, use a sampler of `sampler` instead",
            stacklevel=2,
        )
        shard = Shard(rank, world_size)
        del batch_readahead
        if granularity not in {"fragment", "batch"}:
            raise InvalidInputError(f"Unrecognized granularity: {granularity}")
        if granularity == "batch" and with_row_id:
            raise UnsupportedError("row ids require sharding by fragments")
        kind = ShardedFragmentSampler if granularity == "fragment" else ShardedBatchSampler
        self._sampler: Sampler = kind(shard.rank, shard.world_size)
        self._dataset = data if isinstance(data, LanceDataset) else dataset(data)
        self._options: dict[str, Any] = {
            "columns": columns,
            "batch_size": batch_size,
            "with_row_id": with_row_id,
        }

    @staticmethod
    def from_torch(
        data: str | os.PathLike[str] | LanceDataset,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_size: int = _SHARD_BATCH_ROWS,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> ShardedBatchIterator:
        """Return the shard of this process in a distributed PyTorch run."""
        shard = shard_of_torch()
        return ShardedBatchIterator(
            data,
            shard.rank,
            shard.world_size,
            columns=columns,
            batch_size=batch_size,
            granularity=granularity,
            batch_readahead=batch_readahead,
            with_row_id=with_row_id,
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._sampler(self._dataset, **self._options))


_FILE = "cache.arrow"


class UnfinishedPassError(InvalidInputError, RuntimeError):
    """A cached stream was iterated again before its first pass ended."""


class CachedDataset:
    """Batches that are read from a stream once and from an Arrow file afterwards."""

    def __init__(
        self, stream: Iterable[pa.RecordBatch], cache: str | os.PathLike[str] | bool | None = None
    ) -> None:
        """Cache batches in a temporary folder, created in `cache` if that is a path."""
        if cache is False or not isinstance(cache, str | os.PathLike | bool | None):
            raise InvalidInputError("cache must be a folder or True", found=repr(cache))
        parent = cache if isinstance(cache, str | os.PathLike) else None
        self._folder = SpillFolder("stream", parent)
        self._stream = stream
        self._is_begun = False
        self._is_complete = False
        self._close = weakref.finalize(self, self._folder.close)

    def close(self) -> None:
        """Delete the file."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if not self._is_begun:
            return self._first_pass()
        if not self._is_complete:
            raise UnfinishedPassError("the first pass over the stream has not ended")
        return self._later_pass()

    @property
    def _path(self) -> Path:
        return self._folder.path / _FILE

    def _first_pass(self) -> Iterator[pa.RecordBatch]:
        self._is_begun = True
        writer: pa.ipc.RecordBatchStreamWriter | None = None
        try:
            for batch in self._stream:
                if writer is None:
                    writer = pa.ipc.new_stream(self._path, batch.schema)
                writer.write(batch)
                yield batch
        finally:
            if writer is not None:
                writer.close()
        self._is_complete = True

    def _later_pass(self) -> Iterator[pa.RecordBatch]:
        if self._path.exists():
            with pa.memory_map(os.fspath(self._path)) as file:
                yield from pa.ipc.open_stream(file)

"""The part of a dataset that one of several processes reads, in batches."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.sampling import (
    Sampler,
    Shard,
    ShardedBatchSampler,
    ShardedFragmentSampler,
    shard_of_torch,
)
from lancelet.dataset.write import dataset
from lancelet.errors import InvalidInputError, UnsupportedError

_BATCH_ROWS: Final = 1024 * 10


class ShardedBatchIterator:
    """Yields the batches of one shard of a dataset; samplers do the same for loaders."""

    def __init__(
        self,
        data: str | os.PathLike[str] | LanceDataset,
        rank: int,
        world_size: int,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        batch_size: int = _BATCH_ROWS,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> None:
        """Read shard `rank` of `world_size`.

        Args:
            data: A dataset, or where it is.
            rank: Which shard, counted from 0.
            world_size: How many shards there are.
            columns: What to read, by default everything.
            batch_size: The most rows of a batch.
            granularity: Whether every n-th fragment is read, or every n-th batch.
            batch_readahead: Has no effect: reading ahead is bounded by bytes.
            with_row_id: Whether to return a column `_rowid`; only by fragments.
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
            raise UnsupportedError("row ids come with shards of fragments, not of batches")
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
        batch_size: int = _BATCH_ROWS,
        granularity: Literal["fragment", "batch"] = "fragment",
        batch_readahead: int = 8,
        with_row_id: bool = False,
    ) -> ShardedBatchIterator:
        """Read the shard of this process of a distributed run of PyTorch."""
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

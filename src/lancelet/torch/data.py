"""Datasets for the loaders of PyTorch: an iterable one, and one that is indexed by row.

    for batch in LanceDataset("s3://bucket/t.lance", batch_size=256, columns=["image", "label"]):
        ...

The first yields whole batches, so give the loader `batch_size=None`. Each of several workers or
machines reads its share. `state_dict` saves the position of a run, and `load_state_dict` resumes
from it.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, Protocol

import pyarrow as pa

from lancelet.dataset import LanceDataset as Table
from lancelet.dataset import dataset as open_dataset
from lancelet.dataset.scan.sampling import (
    FullScanSampler,
    Sampler,
    ShardedBatchSampler,
    ShardedFragmentSampler,
    without_first,
)
from lancelet.errors import InvalidInputError
from lancelet.sampler import maybe_sample
from lancelet.torch.dist import get_global_rank, get_global_world_size
from lancelet.torch.required import Dataset, IterableDataset, require_torch
from lancelet.torch.tensors import parts_of, to_tensor, to_tensors
from lancelet.training import Loader, plan
from lancelet.training.options import LOADER_OPTIONS, PLAN_OPTIONS
from lancelet.training.plan import blob_columns

_OURS = (FullScanSampler, ShardedFragmentSampler, ShardedBatchSampler)
"""Samplers that leave out the rows that were seen without reading them."""


class ToTensorFn(Protocol):
    """Converts a batch."""

    def __call__(
        self,
        batch: pa.RecordBatch | dict[str, Any],
        *,
        hf_converter: Any = None,
        use_blob_api: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the batch that the loader yields."""


class TensorDataset(Dataset):  # type: ignore[misc]  # PyTorch is an extra, without types here
    """A tensor split into batches, each an item."""

    def __init__(self, data: Any, batch_size: int, *_args: Any, **_kwargs: Any) -> None:
        """Split a tensor or an array into batches."""
        super().__init__()
        self._data = data if hasattr(data, "device") else require_torch().from_numpy(data)
        self._batch_size = batch_size

    def __repr__(self) -> str:
        return "LanceTensorDataset"

    def __len__(self) -> int:
        """Return the number of batches."""
        return math.ceil(len(self._data) / self._batch_size)

    def __getitem__(self, idx: int) -> Any:
        """Return a batch."""
        if idx >= len(self):
            raise StopIteration
        return self._data[idx * self._batch_size : (idx + 1) * self._batch_size, :]


def concat_batches(bs: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches as one."""
    return pa.concat_batches(bs)


class LanceDataset(IterableDataset):  # type: ignore[misc]  # as above
    """Batches of a dataset, to iterate over."""

    def __init__(
        self,
        dataset: Table | str | os.PathLike[str],
        batch_size: int,
        *_args: Any,
        dataset_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # noqa: A002 - pylance's name
        samples: int | None = 0,
        cache: str | bool | None = None,
        with_row_id: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shard_granularity: Literal["fragment", "batch"] | None = None,
        batch_readahead: int = 16,
        to_tensor_fn: Callable[..., Any] | None = to_tensor,
        sampler: Sampler | None = None,
        auto_detect_rank: bool = True,
        **plan_options: Any,
    ) -> None:
        """Read a dataset.

        Args:
            dataset: A dataset or its URI.
            batch_size: The maximum number of rows of a batch.
            dataset_options: Options of `lancelet.dataset`, if a URI is given.
            columns: The columns to read.
            filter: Reads only rows for which it is true.
            samples: The number of rows to sample; 0 for all.
            cache: Whether to keep batches in memory for later epochs.
            with_row_id: Whether to read the row ids too.
            rank: The rank of this process, instead of the one that PyTorch reports.
            world_size: The number of processes.
            shard_granularity: Whether processes share out fragments or batches.
            batch_readahead: Has no effect: reading ahead is bounded by bytes.
            to_tensor_fn: Converts batches; None leaves them as they are.
            sampler: Chooses the rows, instead of the arguments above.
            auto_detect_rank: Whether to ask PyTorch for rank and world size.
            plan_options: Options of `lancelet.training.plan` (`shuffle`, `splits`, `seed`, ...) and
                of its loader (`uneven`, `full_batches`, `decode`, `prefetch_bytes`, ...). With any
                of them, rows come in the order of that plan, ranks have equal steps, and runs
                resume from `state_dict` in the middle of an epoch with any number of ranks.

        Raises:
            InvalidInputError: An option is unknown.
        """
        super().__init__()
        _check_plan_options(plan_options, samples, sampler, shard_granularity)
        if shard_granularity not in (None, "fragment", "batch"):
            raise InvalidInputError(
                "unknown shard_granularity", shard_granularity=shard_granularity
            )
        self.dataset = (
            open_dataset(dataset, **(dataset_options or {}))
            if isinstance(dataset, str | os.PathLike)
            else dataset
        )
        self.batch_size = batch_size
        self.columns = columns
        self.filter = filter
        self.samples = samples
        self.with_row_id = with_row_id
        self.batch_readahead = batch_readahead
        self.rank = rank
        self.world_size = world_size
        self.shard_granularity = shard_granularity
        self.sampler = sampler
        self.cache = cache
        self._blobs = blob_columns(self.dataset, columns)
        self._to_tensor = to_tensor_fn
        self._detects_rank = auto_detect_rank
        self._cached: list[pa.RecordBatch] | None = None
        self._skip_rows = 0
        self._seen_rows = 0
        self._loader = self._planned(plan_options) if plan_options else None

    def _planned(self, options: Mapping[str, Any]) -> Loader:
        """Return what loads batches by a plan."""
        detects = self._detects_rank
        rank = get_global_rank() if self.rank is None and detects else self.rank
        size = get_global_world_size() if self.world_size is None and detects else self.world_size
        loading = {name: value for name, value in options.items() if name in LOADER_OPTIONS}
        planning = {name: value for name, value in options.items() if name not in loading}
        made = plan(self.dataset, columns=self.columns, filter=self.filter, **planning)
        convert = self._to_tensor if "decode" not in loading else None
        to: Any = "torch"
        if convert is to_tensor:
            to = to_tensors
        elif convert is not None:
            to = partial(_batches, convert)
        return made.loader(self.batch_size, rank=rank or 0, world_size=size or 1, to=to, **loading)

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch of a plan; the epoch that is being read continues."""
        if self._loader is None:
            raise InvalidInputError("epochs are of plans; give shuffle=, splits= or seed=")
        self._loader.set_epoch(epoch)

    def __repr__(self) -> str:
        return f"LanceTorchDataset({self.dataset.uri}, size={self.samples})"

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read."""
        return self.dataset.scanner(columns=self.columns, limit=0).projected_schema

    def __iter__(self) -> Iterator[Any]:
        """Yield batches, each converted."""
        if self._loader is not None:
            worker = require_torch().utils.data.get_worker_info()
            if worker is not None:
                self._loader.share(worker.id, worker.num_workers)
            yield from self._loader
            return
        self._seen_rows, skip, self._skip_rows = self._skip_rows, self._skip_rows, 0
        for batch in self._batches(skip):
            self._seen_rows += batch.num_rows
            yield self._converted(batch)
        self._seen_rows = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process, to be saved with the model."""
        if self._loader is not None:
            return {**self._loader.state_dict()}
        return {"rows": self._seen_rows, "version": self.dataset.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved position, at the version of the run, with the next iteration.

        The state of a whole `StatefulDataLoader` resumes a plan with any number of workers, in a
        loader that is made of the dataset afterwards.
        """
        if self._loader is not None:
            self._loader.load_state_dict(_latest(state))
            return
        if state["version"] != self.dataset.version:
            self.dataset = self.dataset.checkout_version(state["version"])
            self._cached = None
        self._skip_rows = self._seen_rows = int(state["rows"])

    def _converted(self, batch: pa.RecordBatch) -> Any:
        """Return the batch that the loader yields, with blobs as files that are read on demand."""
        options: dict[str, Any] = {"hf_converter": None}
        values: pa.RecordBatch | dict[str, Any] = batch
        if self._blobs:
            options["use_blob_api"] = True
            values = {name: batch[name] for name in batch.schema.names}
            row_ids = values["_rowid"].to_pylist()
            if not self.with_row_id:
                del values["_rowid"]
            for name in sorted(self._blobs):
                values[name] = self.dataset.take_blobs(blob_column=name, ids=row_ids)
        return values if self._to_tensor is None else self._to_tensor(values, **options)

    def _batches(self, skip_rows: int) -> Iterator[pa.RecordBatch]:
        if self._cached is not None:
            yield from without_first(iter(self._cached), skip_rows)
            return
        kept: list[pa.RecordBatch] | None = [] if self.cache and not skip_rows else None
        for batch in _joined(self._read(skip_rows), self.batch_size):
            if kept is not None:
                kept.append(batch)
            yield batch
        self._cached = kept

    def _read(self, skip_rows: int) -> Iterator[pa.RecordBatch]:
        columns: Any = self.columns or self.dataset.schema.names
        if self._blobs:
            columns = [name for name in columns if name not in self._blobs]
        if self.samples:
            columns = [*columns, "_rowid"] if self._blobs else columns
            batches = maybe_sample(
                self.dataset, self.samples, columns, self.batch_size, filt=self.filter
            )
            return without_first(batches, skip_rows)
        sampler = self.sampler or self._own_sampler()
        with_row_id = self.with_row_id
        if with_row_id and isinstance(sampler, ShardedBatchSampler) and not self._blobs:
            warnings.warn(
                "with_row_id is not supported for ShardedBatchSampler: no ids come with the rows",
                stacklevel=2,
            )
            with_row_id = False
        reading: dict[str, Any] = {
            "columns": columns,
            "filter": self.filter,
            "batch_size": self.batch_size,
            "with_row_id": with_row_id or bool(self._blobs),
            "batch_readahead": self.batch_readahead,
        }
        if isinstance(sampler, _OURS):
            return sampler(self.dataset, **reading, skip_rows=skip_rows)
        return without_first(sampler(self.dataset, **reading), skip_rows)

    def _own_sampler(self) -> Sampler:
        detects = self._detects_rank
        rank = get_global_rank() if self.rank is None and detects else self.rank
        size = get_global_world_size() if self.world_size is None and detects else self.world_size
        if rank is None or size is None:
            return FullScanSampler()
        if self.shard_granularity == "batch":
            return ShardedBatchSampler(rank, size)
        return ShardedFragmentSampler(rank, size)


class SafeLanceDataset(Dataset):  # type: ignore[misc]  # as above
    """Rows of a dataset by row index; every process opens it for itself, at one version."""

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dataset_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the latest version, or the version that the options name."""
        super().__init__()
        table = open_dataset(uri, **(dataset_options or {}))
        self.uri = uri
        self.dataset_options = {**(dataset_options or {}), "version": table.version}
        self._len = table.count_rows()
        self._identity = table.snapshot.identity
        self._ds: Table | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._len

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return a row."""
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows of a batch at once, as loaders request them."""
        if self._ds is None:
            table = open_dataset(self.uri, **self.dataset_options)
            table.snapshot.check_identity(self._identity)
            self._ds = table
        rows: list[dict[str, Any]] = self._ds.take(indices).to_pylist()
        return rows

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open dataset: workers open it again."""
        return {**self.__dict__, "_ds": None}


def get_safe_loader(dataset: Any, batch_size: int = 32, num_workers: int = 4, **kwargs: Any) -> Any:
    """Return a loader whose workers are spawned, which is safe with any dataset."""
    torch = require_torch()
    options = {
        "persistent_workers": num_workers > 0,
        "multiprocessing_context": torch.multiprocessing.get_context("spawn"),
        **kwargs,
    }
    if not num_workers:
        del options["multiprocessing_context"]
    return torch.utils.data.DataLoader(
        dataset, batch_size=batch_size, num_workers=num_workers, **options
    )


def _batches(to_tensor_fn: Callable[..., Any], rows: pa.Table, sizes: Sequence[int]) -> list[Any]:
    """Return each batch as a function of the user's makes it."""
    parts = [part.combine_chunks().to_batches()[0] for part in parts_of(rows, sizes)]
    return [to_tensor_fn(part, hf_converter=None) for part in parts]


def _check_plan_options(
    options: Mapping[str, Any], samples: int | None, sampler: Any, granularity: Any
) -> None:
    """Raise if an option is unknown, or others choose the rows."""
    known = sorted({*PLAN_OPTIONS, *LOADER_OPTIONS})
    unknown = sorted(set(options) - set(known))
    if unknown:
        near = get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidInputError(f"no such option{hint}", unknown=unknown, known=known)
    if options and (samples or sampler is not None or granularity is not None):
        raise InvalidInputError(
            "samples, sampler and shard_granularity choose rows otherwise than a plan does",
            options=sorted(options),
        )


def _latest(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the position of a whole loader of PyTorch: that of the batch it yielded last."""
    if "plan" in state:
        return state
    parts, unseen = [state], 0
    if "_snapshot" in state:
        parts = list(state["_snapshot"]["_worker_snapshots"].values())
        unseen = state["_steps_since_snapshot"]
    if unseen or not all("dataset_state" in part for part in parts):
        raise InvalidInputError(
            "the state is neither of a dataset nor of a StatefulDataLoader that keeps one of each "
            "step (snapshot_every_n_steps=1)",
            found=sorted(state),
        )
    positions = [part["dataset_state"] for part in parts]
    found = max(positions, key=lambda each: (each["epoch"], each["position"]))
    return {name: found[name] for name in found if name not in ("origin", "share")}


def _joined(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield batches, with small ones joined up to a maximum number of rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if waiting and rows + batch.num_rows > most:
            yield concat_batches(waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
    if waiting:
        yield concat_batches(waiting)

"""Iterable and map-style datasets for PyTorch data loaders.

    for batch in LanceDataset("s3://bucket/t.lance", batch_size=256, columns=["image", "label"]):
        ...

`LanceDataset` yields whole batches, so pass `batch_size=None` to the data loader. Workers and ranks
read disjoint parts. `state_dict` saves the position of a run; `load_state_dict` resumes from it.
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

_RESUMABLE_SAMPLERS = (FullScanSampler, ShardedFragmentSampler, ShardedBatchSampler)
"""Samplers that skip consumed rows without reading them."""


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
        """Return the converted batch."""


class TensorDataset(Dataset):  # type: ignore[misc]  # PyTorch is an extra, without types here
    """A tensor divided into batches, which are the items of the dataset."""

    def __init__(self, data: Any, batch_size: int, *_args: Any, **_kwargs: Any) -> None:
        """Divide a tensor or an array into batches."""
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
    """Concatenate batches."""
    return pa.concat_batches(bs)


class LanceDataset(IterableDataset):  # type: ignore[misc]  # as above
    """An iterable dataset of batches."""

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
            filter: An SQL predicate on the rows to read.
            samples: The number of rows to sample; 0 for all.
            cache: Whether to cache batches in memory for later epochs.
            with_row_id: Whether to include row ids.
            rank: The rank of this process; reported by PyTorch by default.
            world_size: The number of processes.
            shard_granularity: Whether to distribute fragments or batches among processes.
            batch_readahead: Ignored; read-ahead is limited by bytes.
            to_tensor_fn: Converts batches; None yields Arrow batches.
            sampler: The sampler that selects the rows; replaces the arguments above.
            auto_detect_rank: Whether to use the rank and world size reported by PyTorch.
            plan_options: Options of `lancelet.training.plan` (`shuffle`, `splits`, `seed`, ...) and
                of its loader (`uneven`, `full_batches`, `decode`, `prefetch_bytes`, ...). If any
                is given, rows have the order of the plan, ranks have equal steps, and runs resume
                from `state_dict` in the middle of an epoch with any number of ranks.

        Raises:
            InvalidInputError: An option is unknown.
        """
        super().__init__()
        _check_plan_options(plan_options, samples, sampler, shard_granularity)
        if (rank is None) != (world_size is None):
            raise InvalidInputError(
                "rank and world_size must be given together", rank=rank, world_size=world_size
            )
        if plan_options:
            _check_plan_arguments(
                with_row_id=with_row_id,
                cache=bool(cache),
                to_tensor_fn=to_tensor_fn is not to_tensor and "decode" in plan_options,
            )
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
        self._loader = self._create_loader(plan_options) if plan_options else None

    def _create_loader(self, options: Mapping[str, Any]) -> Loader:
        """Return a loader with the given plan and loader options."""
        detects = self._detects_rank
        rank = get_global_rank() if self.rank is None and detects else self.rank
        size = get_global_world_size() if self.world_size is None and detects else self.world_size
        loading = {name: value for name, value in options.items() if name in LOADER_OPTIONS}
        planning = {name: value for name, value in options.items() if name not in loading}
        training_plan = plan(self.dataset, columns=self.columns, filter=self.filter, **planning)
        convert = self._to_tensor if "decode" not in loading else None
        to: Any = "torch"
        if convert is to_tensor:
            to = to_tensors
        elif convert is not None:
            to = partial(_convert_batches, convert)
        return training_plan.loader(
            self.batch_size, rank=rank or 0, world_size=size or 1, to=to, **loading
        )

    def __len__(self) -> int:
        """Return the number of batches per epoch of a plan."""
        if self._loader is None:
            raise TypeError("only plans have a length; set shuffle=, splits= or seed=")
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch of a plan; has no effect for the current epoch."""
        if self._loader is None:
            raise InvalidInputError("only plans have epochs; set shuffle=, splits= or seed=")
        self._loader.set_epoch(epoch)

    def __repr__(self) -> str:
        return f"LanceTorchDataset({self.dataset.uri}, size={self.samples})"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.dataset.scanner(columns=self.columns, limit=0).projected_schema

    def __iter__(self) -> Iterator[Any]:
        """Yield converted batches."""
        if self._loader is not None:
            worker = require_torch().utils.data.get_worker_info()
            if worker is not None:
                self._loader.share(worker.id, worker.num_workers)
            yield from self._loader
            return
        self._seen_rows, skip, self._skip_rows = self._skip_rows, self._skip_rows, 0
        for batch in self._iter_batches(skip):
            self._seen_rows += batch.num_rows
            yield self._convert(batch)
        self._seen_rows = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process."""
        if self._loader is not None:
            return {**self._loader.state_dict()}
        return {"rows": self._seen_rows, "version": self.dataset.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved position and version in the next iteration.

        To resume a plan with a different number of workers, load the state of the whole
        `StatefulDataLoader` before creating a loader of this dataset.
        """
        if self._loader is not None:
            self._loader.load_state_dict(_latest_position(state))
            return
        if state["version"] != self.dataset.version:
            self.dataset = self.dataset.checkout_version(state["version"])
            self._cached = None
        self._skip_rows = self._seen_rows = int(state["rows"])

    def _convert(self, batch: pa.RecordBatch) -> Any:
        """Convert a batch; blobs are file objects that are read on demand."""
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

    def _iter_batches(self, skip_rows: int) -> Iterator[pa.RecordBatch]:
        if self._cached is not None:
            yield from without_first(iter(self._cached), skip_rows)
            return
        cached_batches: list[pa.RecordBatch] | None = [] if self.cache and not skip_rows else None
        for batch in _merge_batches(self._read(skip_rows), self.batch_size):
            if cached_batches is not None:
                cached_batches.append(batch)
            yield batch
        self._cached = cached_batches

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
        sampler = self.sampler or self._default_sampler()
        with_row_id = self.with_row_id
        if with_row_id and isinstance(sampler, ShardedBatchSampler) and not self._blobs:
            warnings.warn(
                "with_row_id is not supported for ShardedBatchSampler and is ignored",
                stacklevel=2,
            )
            with_row_id = False
        scan_options: dict[str, Any] = {
            "columns": columns,
            "filter": self.filter,
            "batch_size": self.batch_size,
            "with_row_id": with_row_id or bool(self._blobs),
            "batch_readahead": self.batch_readahead,
        }
        if isinstance(sampler, _RESUMABLE_SAMPLERS):
            return sampler(self.dataset, **scan_options, skip_rows=skip_rows)
        return without_first(sampler(self.dataset, **scan_options), skip_rows)

    def _default_sampler(self) -> Sampler:
        detects = self._detects_rank
        rank = get_global_rank() if self.rank is None and detects else self.rank
        size = get_global_world_size() if self.world_size is None and detects else self.world_size
        if rank is None or size is None:
            return FullScanSampler()
        if self.shard_granularity == "batch":
            return ShardedBatchSampler(rank, size)
        return ShardedFragmentSampler(rank, size)


class SafeLanceDataset(Dataset):  # type: ignore[misc]  # as above
    """A map-style dataset of rows; each process opens the dataset at the same version."""

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dataset_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the latest version, or the version in the options."""
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
        """Return the rows of a batch."""
        if self._ds is None:
            table = open_dataset(self.uri, **self.dataset_options)
            table.snapshot.check_identity(self._identity)
            self._ds = table
        rows: list[dict[str, Any]] = self._ds.take(indices).to_pylist()
        return rows

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the open dataset; workers open it again."""
        return {**self.__dict__, "_ds": None}


def get_safe_loader(dataset: Any, batch_size: int = 32, num_workers: int = 4, **kwargs: Any) -> Any:
    """Return a data loader with spawned workers, which is safe for all datasets."""
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


def _convert_batches(
    to_tensor_fn: Callable[..., Any], rows: pa.Table, sizes: Sequence[int]
) -> list[Any]:
    """Convert each batch with a user function."""
    parts = [part.combine_chunks().to_batches()[0] for part in parts_of(rows, sizes)]
    return [to_tensor_fn(part, hf_converter=None) for part in parts]


def _check_plan_options(
    options: Mapping[str, Any], samples: int | None, sampler: Any, granularity: Any
) -> None:
    """Raise if an option is unknown, or conflicts with other arguments."""
    valid_names = sorted({*PLAN_OPTIONS, *LOADER_OPTIONS})
    unknown = sorted(set(options) - set(valid_names))
    if unknown:
        near = get_close_matches(unknown[0], valid_names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidInputError(f"unknown option{hint}", unknown=unknown, expected=valid_names)
    if options and (samples or sampler is not None or granularity is not None):
        raise InvalidInputError(
            "plan options cannot be combined with samples, sampler or shard_granularity",
            options=sorted(options),
        )


def _check_plan_arguments(**given: bool) -> None:
    """Raise if arguments that plans do not support are given."""
    hints = {
        "with_row_id": "add '_rowid' to columns",
        "cache": "plans read a new order in each epoch",
        "to_tensor_fn": "decode converts the values of columns; combine it with collate",
    }
    for name, is_given in given.items():
        if is_given:
            raise InvalidInputError(
                f"{name} is not supported with these plan options: {hints[name]}", argument=name
            )


def _latest_position(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the position in the state of a dataset or a whole `StatefulDataLoader`."""
    if "plan" in state:
        return state
    parts, unseen = [state], 0
    if "_snapshot" in state:
        parts = list(state["_snapshot"]["_worker_snapshots"].values())
        unseen = state["_steps_since_snapshot"]
    if unseen or not all("dataset_state" in part for part in parts):
        raise InvalidInputError(
            "expected the state of a dataset, or of a StatefulDataLoader with "
            "snapshot_every_n_steps=1",
            found=sorted(state),
        )
    positions = [part["dataset_state"] for part in parts]
    found = max(positions, key=lambda each: (each["epoch"], each["position"]))
    return {name: found[name] for name in found if name not in ("origin", "share")}


def _merge_batches(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Concatenate small batches, up to a maximum number of rows."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if pending and rows + batch.num_rows > rows_max:
            yield concat_batches(pending)
            pending, rows = [], 0
        pending.append(batch)
        rows += batch.num_rows
    if pending:
        yield concat_batches(pending)

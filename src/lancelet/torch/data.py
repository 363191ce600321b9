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
from lancelet.torch.dist import (
    divides_batches,
    get_dist_rank,
    get_dist_world_size,
    get_mp_rank,
    get_mp_world_size,
)
from lancelet.torch.epochs import SharedEpochs
from lancelet.torch.required import Dataset, IterableDataset, require_torch, torch_if_installed
from lancelet.torch.shared import to_shared_storage
from lancelet.torch.tensors import parts_of, to_tensor, to_tensors
from lancelet.training import Loader, Mixture, PackedPlan, Plan, WindowPlan, plan
from lancelet.training.loader import Source
from lancelet.training.options import LOADER_OPTIONS, PLAN_OPTIONS
from lancelet.training.plan import blob_columns
from lancelet.training.shuffle import mixed_key

_RESUMABLE_SAMPLERS = (FullScanSampler, ShardedFragmentSampler, ShardedBatchSampler)
"""Samplers that skip consumed rows without reading them."""


_PREFETCHED_BATCHES_MAX = 16
"""Workers that yielded more batches are not only prefetching."""


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
        dataset: Table | Plan | PackedPlan | WindowPlan | Mixture | str | os.PathLike[str],
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
            dataset: A dataset or its URI; or a plan, a mixture, windows or packed sequences of
                `lancelet.training`, with only the options of loaders.
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
                to_tensor_fn=to_tensor_fn is not to_tensor
                and bool({"decode", "ragged"} & plan_options.keys()),
            )
        if shard_granularity not in (None, "fragment", "batch"):
            raise InvalidInputError(
                "unknown shard_granularity", shard_granularity=shard_granularity
            )
        source: Source | None = None
        if isinstance(dataset, Plan | PackedPlan | WindowPlan | Mixture):
            source, first = dataset, _first_plan(dataset)
            _check_source_options(
                plan_options,
                columns=columns,
                filter=filter,
                dataset_options=dataset_options,
                with_row_id=with_row_id or None,
                cache=cache or None,
                samples=samples or None,
                sampler=sampler,
                shard_granularity=shard_granularity,
            )
            if not isinstance(source, Plan) and to_tensor_fn not in (None, to_tensor):
                raise InvalidInputError(
                    "to_tensor_fn requires a plan; convert batches of other sources with the "
                    "`collate_fn` of the DataLoader",
                    source=type(source).__name__,
                )
            dataset, columns = first.dataset, first.columns
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
        self._launched: tuple[int, int] | None = None
        self._plan_loader: Loader | None = None
        if source is not None or plan_options:
            self._plan_loader = self._create_loader(source, plan_options)
        self._epochs = SharedEpochs() if self._plan_loader and torch_if_installed() else None
        self._iterations = 0
        self._has_worker_state = False

    def _create_loader(self, source: Source | None, options: Mapping[str, Any]) -> Loader:
        """Return a loader of a source, or of a plan with the given plan and loader options."""
        loading = {name: value for name, value in options.items() if name in LOADER_OPTIONS}
        if source is None:
            planning = {name: value for name, value in options.items() if name not in loading}
            source = plan(self.dataset, columns=self.columns, filter=self.filter, **planning)
        to: Any = "torch"
        if not {"decode", "ragged"} & loading.keys():
            if not isinstance(source, Plan):
                to = "arrow" if self._to_tensor is None else "torch"
            elif self._to_tensor is to_tensor:
                to = to_tensors
            else:
                to = (
                    "arrow"
                    if self._to_tensor is None
                    else partial(_convert_batches, self._to_tensor)
                )
        return Loader(source, self.batch_size, to=to, **loading)

    @property
    def _loader(self) -> Loader | None:
        """The loader of a plan, with the rank of this process."""
        if self._plan_loader is not None:
            self._plan_loader.set_rank(*self._process())
        return self._plan_loader

    def _process(self) -> tuple[int, int]:
        """Return the rank and the number of distributed processes, without loader workers.

        Launchers may create the processes after the dataset. Spawned workers do not belong to the
        process group, so the dataset is sent to them with the rank of their parent.
        """
        if self.rank is not None and self.world_size is not None:
            return self.rank, self.world_size
        if not self._detects_rank:
            return 0, 1
        found = get_dist_rank(), get_dist_world_size()
        return self._launched or found if found[1] == 1 else found

    def __getstate__(self) -> dict[str, Any]:
        """Include the rank, for spawned workers."""
        self._check_divided_once()
        return {**self.__dict__, "_launched": self._process()}

    def _check_divided_once(self) -> None:
        """Raise if accelerate divides the batches of this rank among the ranks again."""
        if self._process()[1] > 1 and divides_batches(self):
            raise InvalidInputError(
                "accelerate divides the batches of this dataset among the processes again, which "
                "drops data; do not pass its DataLoader to `prepare` (in the Hugging Face Trainer, "
                "override `get_train_dataloader`), or create the dataset with rank=0 and "
                "world_size=1",
                world_size=self._process()[1],
            )

    def __len__(self) -> int:
        """Return the number of batches per epoch of a plan."""
        if self._loader is None:
            raise TypeError("only plans have a length; set shuffle=, splits= or seed=")
        return len(self._loader)

    @property
    def epoch(self) -> int:
        """The last epoch that was started, or the next one if none was started."""
        if self._plan_loader is None:
            raise InvalidInputError("only plans have epochs; set shuffle=, splits= or seed=")
        last = None if self._epochs is None else self._epochs.last
        return self._plan_loader.epoch if last is None else last

    @property
    def skipped(self) -> int:
        """The number of samples that `undecodable="skip"` skipped, in this process and workers."""
        in_workers = 0 if self._epochs is None else self._epochs.skipped
        return in_workers + (0 if self._plan_loader is None else self._plan_loader.skipped)

    def set_epoch(self, epoch: int) -> None:
        """Read the given epoch in the next iteration, also in persistent workers.

        After `load_state_dict`, setting the epoch of the state keeps the position.
        """
        if self._plan_loader is None:
            raise InvalidInputError("only plans have epochs; set shuffle=, splits= or seed=")
        if self._epochs is not None and self._epochs.last is not None:
            self._plan_loader.move_to(epoch, 0)
        self._plan_loader.set_epoch(epoch)
        self._share_position()

    def _share_position(self) -> None:
        """Start the next iteration of workers at the position of this process."""
        if self._plan_loader is None or self._epochs is None:
            return
        if _worker() is None:
            self._epochs.reset(self._plan_loader.epoch, self._plan_loader.position)
        else:
            self._has_worker_state = True

    def __repr__(self) -> str:
        return f"LanceTorchDataset({self.dataset.uri}, size={self.samples})"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.dataset.scanner(columns=self.columns, limit=0).projected_schema

    def __iter__(self) -> Iterator[Any]:
        """Yield converted batches.

        Each iteration of a plan reads the next epoch. With workers, this is also true if the
        previous iteration was not exhausted, as workers have read further batches of its epoch.
        """
        self._check_divided_once()
        if self._loader is None:
            return self._iter_scan()
        return self._iter_plan(self._loader) if _worker() is None else self._iter_share()

    def _iter_plan(self, loader: Loader) -> Iterator[Any]:
        """Yield the batches of the epoch in this process."""
        if self._epochs is not None and self._epochs.last is not None:
            loader.move_to(self._epochs.last + 1, 0)
        try:
            yield from loader
        finally:
            self._share_position()

    def _iter_share(self) -> Iterator[Any]:
        """Return the batches of a worker; all workers of an iteration read the same epoch."""
        loader, worker = self._loader, _worker()
        assert loader is not None, "called for plans"
        assert self._epochs is not None, "workers require PyTorch"
        loader.share(worker.id, worker.num_workers, finish=to_shared_storage)
        self._iterations += 1
        key = mixed_key(worker.seed - worker.id, self._iterations)
        is_new = False
        if self._has_worker_state:
            self._has_worker_state = False
            if self._epochs.resume(worker.id, worker.num_workers, key, loader.epoch) > loader.epoch:
                # Another worker read the last step of the epoch, so this worker has no more steps.
                loader.finish_epoch()
            is_new = loader.position == 0 and loader.epoch > 0
            self._epochs.publish(worker.id, key, loader.epoch - is_new)
        else:
            loader.move_to(*self._epochs.start(worker.id, key))
        return self._iter_worker(loader, worker.id, key if is_new else None)

    def _iter_worker(self, loader: Loader, worker: int, key: int | None) -> Iterator[Any]:
        """Yield the batches of a worker; with a key, publish the epoch after some batches.

        A StatefulDataLoader that resumes after the end of an epoch starts two iterations, and
        discards the batches that workers prefetched for the first.
        """
        assert self._epochs is not None, "workers require PyTorch"
        epoch, before = loader.epoch, loader.skipped
        for number, batch in enumerate(loader):
            self._epochs.add_skipped(worker, loader.skipped - before)
            before = loader.skipped
            if key is not None and number == _PREFETCHED_BATCHES_MAX:
                self._epochs.publish(worker, key, epoch)
            yield batch

    def _iter_scan(self) -> Iterator[Any]:
        self._seen_rows, skip, self._skip_rows = self._skip_rows, self._skip_rows, 0
        for batch in self._iter_batches(skip):
            self._seen_rows += batch.num_rows
            yield self._convert(batch)
        self._seen_rows = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process.

        Raises:
            InvalidInputError: Workers have read the plan, and only they have the position.
        """
        if self._loader is not None:
            if _worker() is None and self._epochs is not None and self._epochs.last is not None:
                raise InvalidInputError(
                    "the workers of the loader have the position; use a StatefulDataLoader, or "
                    "save `epoch` after whole epochs and pass it to `set_epoch`",
                    epoch=self._epochs.last,
                )
            return {**self._loader.state_dict()}
        return {"rows": self._seen_rows, "version": self.dataset.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved position and version in the next iteration.

        To resume a plan with a different number of workers, load the state of the whole
        `StatefulDataLoader` before creating a loader of this dataset.
        """
        if self._loader is not None:
            self._loader.load_state_dict(_latest_position(state))
            self._share_position()
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
        rank, size = self.rank, self.world_size
        if rank is None or size is None:
            if not self._detects_rank:
                return FullScanSampler()
            # Each worker of each process reads a share.
            process, processes = self._process()
            rank = process * get_mp_world_size() + get_mp_rank()
            size = processes * get_mp_world_size()
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


def _worker() -> Any:
    """Return the loader worker that this process is, or None."""
    torch = torch_if_installed()
    return None if torch is None else torch.utils.data.get_worker_info()


def _convert_batches(
    to_tensor_fn: Callable[..., Any], rows: pa.Table, sizes: Sequence[int]
) -> list[Any]:
    """Convert each batch with a user function."""
    parts = [part.combine_chunks().to_batches()[0] for part in parts_of(rows, sizes)]
    return [to_tensor_fn(part, hf_converter=None) for part in parts]


def _first_plan(source: Source) -> Plan:
    """Return the plan of a source, or the first plan of a mixture."""
    if isinstance(source, Mixture):
        return _first_plan(source.plans[0])
    if isinstance(source, PackedPlan | WindowPlan):
        return source.plan
    assert isinstance(source, Plan), "there are no other sources"
    return source


def _check_source_options(options: Mapping[str, Any], **arguments: Any) -> None:
    """Raise if arguments are given that the plan of the source already has."""
    given = [name for name, value in arguments.items() if value is not None]
    given += [name for name in options if name not in LOADER_OPTIONS]
    if given:
        raise InvalidInputError(
            "pass these arguments to the function that created the plan", arguments=sorted(given)
        )


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
        "to_tensor_fn": "decode and ragged convert the values of columns",
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

"""The rows of an epoch and their order: a function of version, filter, split, seed and epoch.

    rows of the version ──filter──> rows ──split──> rows of the part ──order──> samples 0 .. n

Ranks, workers and the batch size determine which process reads a sample, but not its row. A run can
therefore resume from the number of consumed samples, with any number of ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.dataset import LanceDataset
from lancelet.errors import InvalidInputError
from lancelet.scan.take import StoredRows
from lancelet.training.arguments import ArgumentTypeError, check_booleans, check_integers
from lancelet.training.shuffle import (
    ByClumps,
    ByRows,
    ByWeights,
    InOrder,
    Order,
    Positions,
    WithReplacement,
)
from lancelet.training.splits import rows_of_split
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.training.loader import Loader

Shuffle = Literal["rows", "clumps", "fragments", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The rows of each epoch and their order; created by `plan`.

    Attributes:
        dataset: The dataset at the version of the plan; a separate object that is unaffected by
            writes through other objects.
        columns: The columns to read.
        blobs: The blob columns among them, with the names of their offset and length columns, or
            None for whole blobs.
        order: Maps positions of an epoch to rows.
        rows: The row indices after filter and split; None for all rows.
        seed: The seed of the order.
        name: A description of all further parameters of the order, compared on resumption.
    """

    dataset: LanceDataset
    columns: tuple[str, ...] | Mapping[str, str]
    blobs: Mapping[str, tuple[str, str] | None]
    order: Order
    rows: Positions | None
    seed: int
    name: str

    def __len__(self) -> int:
        """Return the number of samples per epoch."""
        return len(self.order)

    @property
    def version(self) -> int:
        """The version of the dataset."""
        return self.dataset.version

    @property
    def table(self) -> str:
        """An identifier of the version that is unique across datasets."""
        return self.dataset.snapshot.identity

    @property
    def layout(self) -> Any:
        """The names and types of the columns."""
        columns = self.columns if isinstance(self.columns, Mapping) else list(self.columns)
        schema = self.dataset.scanner(columns=columns, limit=0).projected_schema
        return list(zip(schema.names, schema.types, strict=True))

    def rows_at(self, positions: Positions, epoch: int) -> Positions:
        """Return the row indices of the samples at positions of an epoch.

        >>> import lancelet
        >>> table = lancelet.write_dataset({"x": [10, 20, 30]}, "memory://rows-at")
        >>> plan(table, shuffle="none").rows_at(np.array([2, 0]), epoch=0)
        array([2, 0])
        """
        indices = self.order.at(positions, epoch)
        return indices if self.rows is None else self.rows[indices]

    def read(self, positions: Positions, epoch: int) -> pa.Table:
        """Return the samples at positions of an epoch, in order."""
        return self.rows_of(self.rows_at(positions, epoch))

    def read_stored(self, positions: Positions, epoch: int) -> pa.Table | StoredRows:
        """Return the samples at positions of an epoch; shuffled rows are in storage order."""
        rows = self.rows_at(positions, epoch)
        if self.blobs or _is_contiguous(rows):
            return self.rows_of(rows)
        return self.dataset._take_stored(rows, self._columns_to_read)  # noqa: SLF001 - not in pylance

    def locate(self, position: int, epoch: int) -> dict[str, Any]:
        """Return the row index of a sample, for error messages."""
        return {"row": int(self.rows_at(np.array([position]), epoch)[0])}

    def rows_of(self, rows: Positions) -> pa.Table:
        """Return rows by index, including the content of blobs."""
        columns = self._columns_to_read
        if columns and _is_contiguous(rows):
            # Scanning consecutive rows takes a third of the time of a take.
            table = self.dataset.to_table(columns=columns, offset=int(rows[0]), limit=len(rows))
        else:
            table = self.dataset.take(rows, columns=columns)
        if not self.blobs:
            return table
        parts = [
            self._blobs_of(name, rows, table) if name in self.blobs else table[name]
            for name in self.columns
        ]
        return pa.table(parts, names=list(self.columns))

    @property
    def _columns_to_read(self) -> Any:
        if isinstance(self.columns, Mapping):
            return self.columns
        extents = [name for extent in self.blobs.values() for name in extent or ()]
        columns = dict.fromkeys([*self.columns, *extents])
        return [name for name in columns if name not in self.blobs]

    def _blobs_of(self, column: str, rows: Positions, table: pa.Table) -> pa.Array:
        """Return the content of blobs, or the ranges given by other columns."""
        extent = self.blobs[column]
        if extent is None:
            read = self.dataset.read_blobs(column, indices=rows)
            return pa.array([data for _, data in read], pa.large_binary())
        row_numbers = rows.tolist()
        offsets, sizes = (table[name].to_pylist() for name in extent)
        values: list[bytes | None] = [None] * len(row_numbers)
        given = [
            (index, request)
            for index, request in enumerate(zip(row_numbers, offsets, sizes, strict=True))
            if None not in request
        ]
        requests = [request for _, request in given]
        parts = self.dataset.read_blob_ranges(column, requests, selector="indices")
        for (index, _), (_, _, data) in zip(given, parts, strict=True):
            values[index] = data
        return pa.array(values, pa.large_binary())

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the plan for one rank; see `Loader` for the options."""
        from lancelet.training.loader import Loader  # noqa: PLC0415  circular import

        return Loader(self, batch_size, **options)


def plan(
    dataset: LanceDataset,
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    blob_ranges: Mapping[str, tuple[str, str]] | None = None,
    filter: str | None = None,  # noqa: A002 - same name as in scans
    row_ids: Sequence[int] | npt.NDArray[Any] | None = None,
    splits: Mapping[str, float] | None = None,
    split: str | None = None,
    split_key: str | None = None,
    stratify_by: str | None = None,
    split_seed: int = 0,
    shuffle: Shuffle = "rows",
    clump_size: int | None = None,
    weights: str | Sequence[float] | npt.NDArray[Any] | None = None,
    balance_by: str | None = None,
    replacement: bool = False,
    samples: int | None = None,
    seed: int = 0,
) -> Plan:
    """Create a plan of the rows of an epoch and their order.

    Args:
        dataset: The dataset; the plan is pinned to its version.
        columns: The columns to read, as in a scan; all by default. Blobs are read as bytes.
        blob_ranges: The offset and length columns of blob columns, to read a range of each blob,
            such as some frames of a video. Other blobs are read completely.
        filter: An SQL predicate on the rows to read.
        row_ids: The ids of the rows to read.
        splits: The fraction of rows per split, such as `{"train": 0.9, "valid": 0.1}`. Appending
            rows does not change the split of existing rows.
        split: The split to read.
        split_key: A column; rows with the same value are in the same split. By default, rows are
            assigned by id, which compaction changes unless the dataset has stable row ids.
        stratify_by: A column; the rows of each value are divided by the same fractions. Deleting a
            row or updating its value may move other rows of the value.
        split_seed: The seed of the splits.
        shuffle: `rows` shuffles rows. `clumps` shuffles runs of `clump_size` consecutive rows.
            `fragments` shuffles fragments. `none` uses the order of the dataset.
        clump_size: The number of rows per run, for `clumps`.
        weights: A numeric column, or an array with a number per row: the relative probability of
            rows, which are drawn with replacement.
        balance_by: A column; its values are drawn with equal probability, with replacement.
        replacement: Whether rows are drawn with replacement.
        samples: The number of samples per epoch if rows are drawn with replacement; the number of
            rows by default.
        seed: The seed of the order.

    Raises:
        InvalidInputError: Arguments are inconsistent, or no rows remain.
        FieldNotFoundError: A column does not exist.
    """
    check_integers(seed=seed, split_seed=split_seed)
    check_integers(allow_none=True, clump_size=clump_size, samples=samples)
    _check_order(shuffle, clump_size, samples, weights, balance_by, replacement=replacement)
    if (splits is None) != (split is None):
        raise InvalidInputError("splits and split must be given together")
    if split is None and (split_key or stratify_by or split_seed):
        raise InvalidInputError("split_key, stratify_by and split_seed require splits and split")
    if columns is not None and not len(columns):
        raise InvalidInputError("columns is empty; name a column, or pass None for all columns")
    chosen = None if row_ids is None else _row_ids(row_ids)
    # Writes move the object of the caller to a new version, but must not move the plan.
    dataset = copy(dataset)
    schema = dataset.scanner(columns=columns, limit=0).projected_schema
    blobs = _blobs(dataset, columns, blob_ranges or {})
    extra = [name for name in (split_key, stratify_by, balance_by) if name is not None]
    if isinstance(weights, str):
        extra.append(weights)
    key_table: pa.Table | None = None
    if filter is not None or row_ids is not None or split is not None or extra:
        extra = list(dict.fromkeys(extra))
        key_table = dataset.to_table(columns=["_rowoffset", "_rowid", *extra], filter=filter)
    if key_table is not None and chosen is not None:
        key_table = key_table.filter(pc.is_in(key_table["_rowid"], pa.array(chosen)))
    if key_table is not None and split is not None and splits is not None:
        divided = key_table
        if stratify_by is not None:
            # A filter selects rows of a split, but must not change the split of rows.
            divided = dataset.to_table(columns=["_rowid", stratify_by])
        in_split = rows_of_split(
            divided, splits, split, key=split_key, stratum=stratify_by, seed=split_seed
        )
        key_table = key_table.filter(
            pc.is_in(key_table["_rowid"], divided["_rowid"].filter(pa.array(in_split)))
        )
    rows = None if key_table is None else key_table["_rowoffset"].to_numpy().astype(np.int64)
    count = dataset.count_rows() if rows is None else len(rows)
    if not count:
        raise InvalidInputError("no rows remain after filter and split", filter=filter, split=split)
    drawn = count if samples is None else samples
    weight = _weights(key_table, count, weights, balance_by)
    order: Order
    if weight is not None:
        order = ByWeights(drawn, np.cumsum(weight), seed)
    elif replacement:
        order = WithReplacement(drawn, count, seed)
    elif shuffle == "rows":
        order = ByRows(count, seed)
    elif shuffle == "none":
        order = InOrder(count)
    else:
        order = ByClumps(_clumps(dataset, rows, count, shuffle, clump_size), seed)
    names = columns if isinstance(columns, Mapping) else tuple(schema.names)
    ids = None if chosen is None else _digest(np.unique(chosen))
    parts = (splits and dict(splits), split, split_key, stratify_by, split_seed)
    order_options = (
        shuffle,
        clump_size,
        _describe_weights(weights),
        balance_by,
        replacement,
        samples,
    )
    return Plan(
        dataset, names, blobs, order, rows, seed, repr((filter, ids, *parts, *order_options))
    )


def _row_ids(row_ids: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    ids = np.asarray(row_ids)
    if len(ids) and (ids.dtype.kind not in "iu" or ids.min() < 0):
        raise ArgumentTypeError("row_ids must be integers of at least 0", found=ids[:8].tolist())
    return ids.astype(np.uint64)


def _is_contiguous(rows: Positions) -> bool:
    return len(rows) > 0 and bool((np.diff(rows) == 1).all())


def _check_order(
    shuffle: str,
    clump_size: int | None,
    samples: int | None,
    weights: Any,
    balance_by: str | None,
    *,
    replacement: bool,
) -> None:
    """Raise if the arguments of the order are inconsistent."""
    if shuffle not in get_args(Shuffle):
        raise InvalidInputError("unknown shuffle", found=shuffle, expected=list(get_args(Shuffle)))
    check_booleans(replacement=replacement)
    if (shuffle == "clumps") != (clump_size is not None):
        raise InvalidInputError(
            "clump_size is required for shuffle='clumps', and only supported there"
        )
    if clump_size is not None and clump_size < 1:
        raise InvalidInputError("clump_size must be at least 1", clump_size=clump_size)
    if weights is not None and balance_by is not None:
        raise InvalidInputError("weights and balance_by cannot be combined")
    drawn = replacement or weights is not None or balance_by is not None
    if samples is not None and not (drawn and samples > 0):
        raise InvalidInputError(
            "samples must be positive, and requires replacement, weights or balance_by; other "
            "epochs contain each row once",
            samples=samples,
        )
    if drawn and shuffle != "rows":
        raise InvalidInputError("drawing with replacement requires shuffle='rows'", shuffle=shuffle)


def _blobs(
    dataset: LanceDataset,
    columns: Sequence[str] | Mapping[str, str] | None,
    ranges: Mapping[str, tuple[str, str]],
) -> dict[str, tuple[str, str] | None]:
    """Return the blob columns that are read, with their offset and length columns."""
    blobs = blob_columns(dataset, columns)
    schema = dataset.schema
    for name, extent in ranges.items():
        if name not in blobs:
            raise InvalidInputError("blob_ranges must be blob columns that are read", column=name)
        wrong = [each for each in extent if each not in schema.names]
        if (
            len(extent) != 2
            or wrong
            or not all(pa.types.is_integer(schema.field(each).type) for each in extent)
        ):
            raise InvalidInputError(
                "a blob range requires two integer columns: offset and length",
                column=name,
                found=list(extent),
            )
    return {name: ranges.get(name) for name in sorted(blobs)}


def blob_columns(
    dataset: LanceDataset, columns: Sequence[str] | Mapping[str, str] | None
) -> frozenset[str]:
    """Return the blob columns among the columns to read; computed columns are not blobs."""
    if isinstance(columns, Mapping):
        return frozenset()
    blobs = frozenset(field.name for field in dataset.snapshot.schema.fields if field.is_blob)
    return blobs if columns is None else blobs.intersection(columns)


def _clumps(
    dataset: LanceDataset, rows: Positions | None, count: int, shuffle: str, size: int | None
) -> Positions:
    """Return the start of each clump, followed by the number of rows."""
    if shuffle == "clumps":
        assert size is not None, "validated by _check"
        return np.append(np.arange(0, count, size), count)
    ends = np.cumsum(dataset.snapshot.rows_by_fragment)
    if rows is not None:
        ends = np.searchsorted(rows, ends)
    return np.unique(np.append(0, ends))


def _weights(
    key_table: pa.Table | None, count: int, weights: Any, balance_by: str | None
) -> npt.NDArray[np.float64] | None:
    if balance_by is not None:
        assert key_table is not None, "the column was read"
        codes = pc.dictionary_encode(key_table[balance_by].combine_chunks(), null_encoding="encode")
        classes = codes.indices.to_numpy(zero_copy_only=False)
        balanced: npt.NDArray[np.float64] = 1.0 / np.bincount(classes)[classes]
        return balanced
    if weights is None:
        return None
    if isinstance(weights, str):
        assert key_table is not None, "the column was read"
        weights = key_table[weights].to_numpy()
    values: npt.NDArray[np.float64] = np.asarray(weights, np.float64)
    if len(values) != count:
        raise InvalidInputError(
            "the number of weights must match the number of rows", weights=len(values), rows=count
        )
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise InvalidInputError("weights must be non-negative numbers, and not all zero")
    return values


def _describe_weights(weights: Any) -> Any:
    if weights is None or isinstance(weights, str):
        return weights
    return _digest(np.asarray(weights, np.float64))


def _digest(values: npt.NDArray[Any]) -> str:
    return hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()

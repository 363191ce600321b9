"""The rows of an epoch and their order: a function of version, filter, split, seed and epoch.

    rows of the version ──filter──> rows ──split──> rows of the part ──order──> samples 0 .. n

Ranks, workers and the batch size decide which process reads a sample, and never which row it is. So
a run resumes from the number of samples that were taken, with any number of ranks.
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
from lancelet.training.shuffle import (
    ByClumps,
    ByRows,
    ByWeights,
    InOrder,
    Order,
    Places,
    WithReplacement,
)
from lancelet.training.splits import rows_of_split
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.training.loader import Loader

Shuffle = Literal["rows", "clumps", "fragments", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The rows of an epoch, for any epoch; made by `plan`.

    Attributes:
        dataset: The table at the version of the plan; an object of its own, which writes through
            other objects do not move.
        columns: The columns to read.
        blobs: The blob columns among them, each with the columns of the offset and the length of
            the bytes to read, or None for whole blobs.
        order: Maps a position of an epoch to a row.
        rows: The row indices that remain after filter and split; None if all rows do.
        seed: The seed of the order.
        name: Everything else that the order depends on: a run resumes only with the same.
    """

    dataset: LanceDataset
    columns: tuple[str, ...] | Mapping[str, str]
    blobs: Mapping[str, tuple[str, str] | None]
    order: Order
    rows: Places | None
    seed: int
    name: str

    def __len__(self) -> int:
        """Return how many samples an epoch has."""
        return len(self.order)

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.dataset.version

    @property
    def table(self) -> str:
        """The identity of the version, which differs from that of any other table."""
        return self.dataset.snapshot.identity

    @property
    def layout(self) -> Any:
        """The columns of samples."""
        columns = self.columns if isinstance(self.columns, Mapping) else list(self.columns)
        schema = self.dataset.scanner(columns=columns, limit=0).projected_schema
        return list(zip(schema.names, schema.types, strict=True))

    def rows_at(self, places: Places, epoch: int) -> Places:
        """Return the row indices of the samples at positions of an epoch.

        >>> import lancelet
        >>> table = lancelet.write_dataset({"x": [10, 20, 30]}, "memory://rows-at")
        >>> plan(table, shuffle="none").rows_at(np.array([2, 0]), epoch=0)
        array([2, 0])
        """
        numbers = self.order.at(places, epoch)
        return numbers if self.rows is None else self.rows[numbers]

    def read(self, places: Places, epoch: int) -> pa.Table:
        """Return the samples at positions of an epoch, in order."""
        return self.rows_of(self.rows_at(places, epoch))

    def rows_of(self, rows: Places) -> pa.Table:
        """Return rows by index, with the bytes of blobs, which are read by a request a file."""
        columns: Any = self.columns
        if not isinstance(columns, Mapping):
            extents = [name for extent in self.blobs.values() for name in extent or ()]
            columns = dict.fromkeys([*columns, *extents])
            columns = [name for name in columns if name not in self.blobs]
        if columns and len(rows) and (np.diff(rows) == 1).all():
            # Rows that follow each other are scanned, in a third of the time of looking each up.
            found = self.dataset.to_table(columns=columns, offset=int(rows[0]), limit=len(rows))
        else:
            found = self.dataset.take(rows, columns=columns)
        if not self.blobs:
            return found
        parts = [
            self._blobs_of(name, rows, found) if name in self.blobs else found[name]
            for name in self.columns
        ]
        return pa.table(parts, names=list(self.columns))

    def _blobs_of(self, column: str, rows: Places, found: pa.Table) -> pa.Array:
        """Return the bytes of a blob column: all, or the range that other columns give."""
        extent = self.blobs[column]
        if extent is None:
            read = self.dataset.read_blobs(column, indices=rows)
            return pa.array([data for _, data in read], pa.large_binary())
        numbers = rows.tolist()
        offsets, sizes = (found[name].to_pylist() for name in extent)
        values: list[bytes | None] = [None] * len(numbers)
        given = [
            (place, request)
            for place, request in enumerate(zip(numbers, offsets, sizes, strict=True))
            if None not in request
        ]
        requests = [request for _, request in given]
        parts = self.dataset.read_blob_ranges(column, requests, selector="indices")
        for (place, _), (_, _, data) in zip(given, parts, strict=True):
            values[place] = data
        return pa.array(values, pa.large_binary())

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the plan for one rank; see `Loader` for the options."""
        from lancelet.training.loader import Loader  # noqa: PLC0415  it knows plans

        return Loader(self, batch_size, **options)


def plan(
    dataset: LanceDataset,
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    blob_ranges: Mapping[str, tuple[str, str]] | None = None,
    filter: str | None = None,  # noqa: A002 - the name that scans have
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
    """Return the plan of which rows an epoch reads, and in which order.

    Args:
        dataset: The dataset; the plan is pinned to its version.
        columns: The columns to read, as for a scan; by default all. Blobs come as bytes.
        blob_ranges: For a blob column, the columns with the offset and the length of the bytes to
            read of each row, such as the frames of a window of a video. Other blobs are read whole.
        filter: SQL; only rows for which it is true are read.
        row_ids: Only rows with these ids are read.
        splits: The fraction of rows of each part, such as `{"train": 0.9, "valid": 0.1}`.
            A row stays in its part as rows are appended.
        split: The part to read.
        split_key: A column; rows of one value are in one part. By default each row is drawn by its
            id, which compaction changes unless the table has stable row ids.
        stratify_by: A column; each of its values is divided as exactly as the whole. A row that
            is deleted, or gets another value, may move others of the value.
        split_seed: The seed of the division into parts.
        shuffle: `rows`: all rows at random. `clumps`: runs of `clump_size` consecutive rows stay
            together. `fragments`: the rows of a fragment stay together. `none`: in the order of
            the dataset.
        clump_size: The number of rows that stay together; only for `clumps`.
        weights: A column of numbers, or a number for each row that is read: the relative
            probability of the row. Rows are drawn with replacement.
        balance_by: A column; each of its values is drawn equally often, with replacement.
        replacement: Whether each sample is drawn from all rows, independently of the others.
        samples: The number of samples of an epoch if rows are drawn with replacement; by default
            the number of rows.
        seed: The seed of the order.

    Raises:
        InvalidInputError: Arguments contradict each other, or no row remains.
        FieldNotFoundError: If there is no such column.
    """
    _check(locals())
    # The caller's object moves to a new version with each write; the plan's never does.
    dataset = copy(dataset)
    schema = dataset.scanner(columns=columns, limit=0).projected_schema
    blobs = _blobs(dataset, columns, blob_ranges or {})
    extra = [name for name in (split_key, stratify_by, balance_by) if name is not None]
    if isinstance(weights, str):
        extra.append(weights)
    found: pa.Table | None = None
    if filter is not None or row_ids is not None or split is not None or extra:
        extra = list(dict.fromkeys(extra))
        found = dataset.to_table(columns=["_rowoffset", "_rowid", *extra], filter=filter)
    if found is not None and row_ids is not None:
        wanted = pa.array(np.asarray(row_ids, np.uint64))
        found = found.filter(pc.is_in(found["_rowid"], wanted))
    if found is not None and split is not None and splits is not None:
        divided = found
        if stratify_by is not None:
            # A filter chooses among the rows of a part, and never moves rows between parts.
            divided = dataset.to_table(columns=["_rowid", stratify_by])
        kept = rows_of_split(
            divided, splits, split, key=split_key, stratum=stratify_by, seed=split_seed
        )
        found = found.filter(pc.is_in(found["_rowid"], divided["_rowid"].filter(pa.array(kept))))
    rows = None if found is None else found["_rowoffset"].to_numpy().astype(np.int64)
    count = dataset.count_rows() if rows is None else len(rows)
    if not count:
        raise InvalidInputError("no row remains after filter and split", filter=filter, split=split)
    drawn = count if samples is None else samples
    weight = _weights(found, count, weights, balance_by)
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
    ids = None if row_ids is None else _digest(np.unique(np.asarray(row_ids, np.uint64)))
    parts = (splits and dict(splits), split, split_key, stratify_by, split_seed)
    ways = (shuffle, clump_size, _described(weights), balance_by, replacement, samples)
    return Plan(dataset, names, blobs, order, rows, seed, repr((filter, ids, *parts, *ways)))


def _check(given: Mapping[str, Any]) -> None:
    """Raise if arguments contradict each other."""
    if given["shuffle"] not in get_args(Shuffle):
        raise InvalidInputError(
            "unknown shuffle", found=given["shuffle"], known=list(get_args(Shuffle))
        )
    if (given["shuffle"] == "clumps") != (given["clump_size"] is not None):
        raise InvalidInputError("clump_size goes with shuffle='clumps', and that needs it")
    if given["clump_size"] is not None and given["clump_size"] < 1:
        raise InvalidInputError("a clump has at least one row", clump_size=given["clump_size"])
    if (given["splits"] is None) != (given["split"] is None):
        raise InvalidInputError("splits says which parts there are, split which to read; give both")
    if given["split"] is None and any(given[n] for n in ("split_key", "stratify_by", "split_seed")):
        raise InvalidInputError(
            "split_key, stratify_by and split_seed are about splits; give splits and split"
        )
    if given["weights"] is not None and given["balance_by"] is not None:
        raise InvalidInputError("rows are drawn by weights or balanced, not both")
    drawn = given["replacement"] or given["weights"] is not None or given["balance_by"] is not None
    if given["samples"] is not None and not (drawn and given["samples"] > 0):
        raise InvalidInputError(
            "samples is a positive number where rows are drawn with replacement, by weights or "
            "balanced; else an epoch is every row once",
            samples=given["samples"],
        )
    if drawn and given["shuffle"] != "rows":
        raise InvalidInputError(
            "rows that are drawn have no other shuffle", shuffle=given["shuffle"]
        )


def _blobs(
    dataset: LanceDataset,
    columns: Sequence[str] | Mapping[str, str] | None,
    ranges: Mapping[str, tuple[str, str]],
) -> dict[str, tuple[str, str] | None]:
    """Return the blob columns that are read, and where the extents of ranges are."""
    blobs = blob_columns(dataset, columns)
    schema = dataset.schema
    for name, extent in ranges.items():
        if name not in blobs:
            raise InvalidInputError("blob_ranges are of blob columns that are read", column=name)
        wrong = [each for each in extent if each not in schema.names]
        if (
            len(extent) != 2
            or wrong
            or not all(pa.types.is_integer(schema.field(each).type) for each in extent)
        ):
            raise InvalidInputError(
                "a range of a blob is given by two columns of integers: offset and length",
                column=name,
                found=list(extent),
            )
    return {name: ranges.get(name) for name in sorted(blobs)}


def blob_columns(
    dataset: LanceDataset, columns: Sequence[str] | Mapping[str, str] | None
) -> frozenset[str]:
    """Return the blob columns among those that are read; computed columns are not blobs."""
    if isinstance(columns, Mapping):
        return frozenset()
    blobs = frozenset(field.name for field in dataset.snapshot.schema.fields if field.is_blob)
    return blobs if columns is None else blobs.intersection(columns)


def _clumps(
    dataset: LanceDataset, rows: Places | None, count: int, shuffle: str, size: int | None
) -> Places:
    """Return where clumps begin, and where the last one ends."""
    if shuffle == "clumps":
        assert size is not None, "it was checked"
        return np.append(np.arange(0, count, size), count)
    ends = np.cumsum(dataset.snapshot.rows_by_fragment)
    if rows is not None:
        ends = np.searchsorted(rows, ends)
    return np.unique(np.append(0, ends))


def _weights(
    found: pa.Table | None, count: int, weights: Any, balance_by: str | None
) -> npt.NDArray[np.float64] | None:
    if balance_by is not None:
        assert found is not None, "the column was read"
        codes = pc.dictionary_encode(found[balance_by].combine_chunks(), null_encoding="encode")
        classes = codes.indices.to_numpy(zero_copy_only=False)
        balanced: npt.NDArray[np.float64] = 1.0 / np.bincount(classes)[classes]
        return balanced
    if weights is None:
        return None
    if isinstance(weights, str):
        assert found is not None, "the column was read"
        weights = found[weights].to_numpy()
    values: npt.NDArray[np.float64] = np.asarray(weights, np.float64)
    if len(values) != count:
        raise InvalidInputError("there is one weight for each row", weights=len(values), rows=count)
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise InvalidInputError("weights are numbers from 0 on, and some are above 0")
    return values


def _described(weights: Any) -> Any:
    if weights is None or isinstance(weights, str):
        return weights
    return _digest(np.asarray(weights, np.float64))


def _digest(values: npt.NDArray[Any]) -> str:
    return hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()

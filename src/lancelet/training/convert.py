"""Conversion of batches to Arrow, NumPy, PyTorch or JAX.

Numbers and numeric vectors are not copied if their layout permits it. Several batches are converted
together:

    rows of 3 batches ──one conversion per column──> a tensor ──split──> 3 views without copies

Binary values become lists of arrays of bytes, which share the memory of the rows. Lists in `ragged`
columns become one array with the values of all rows, and the offsets of rows:

    [1 2 3] [4 5]    ->    values 1 2 3 4 5    offsets 0 3 5

Other values become lists of Python objects, which can be converted by `decode` or `collate`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import compress, pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.encodings.take import is_binary
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.kernels import recycled_bytes
from lancelet.scan.take import StoredRows
from lancelet.torch.tensors import numbers_of, parts_of, shared_tensor
from lancelet.training.decoders import decoder_of
from lancelet.values import dataclass

Form = Literal["arrow", "numpy", "torch", "jax"]
ToBatches = Callable[[Any, Sequence[int]], Sequence[Any]]
"""Converts rows to batches of the given sizes."""
Locate = Callable[[int], Mapping[str, Any]]
"""Returns the row of a sample, by its index in the rows to convert, for error messages."""
Undecodable = Literal["raise", "skip"] | Mapping[str, Any]


class Ragged(NamedTuple):
    """Rows of different lengths; row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: Any
    offsets: Any


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts rows to batches. Picklable, for use in spawned workers.

    Attributes:
        to: The output format, or a function that creates batches.
        decode: A function or decoder name per column that converts each value.
        collate: Converts each batch to the yielded value.
        pin_memory: Whether tensors are copied to pinned memory.
        ragged: The columns of lists, binary values or strings that become `Ragged`.
        undecodable: Whether values that cannot be decoded raise an error, or their samples are
            skipped; or the replacement of values by column.
    """

    to: str | ToBatches
    decode: Mapping[str, Any] = field(default_factory=dict)
    collate: Callable[[Any], Any] | None = None
    pin_memory: bool = False
    ragged: Sequence[str] = ()
    undecodable: Undecodable = "raise"

    def __post_init__(self) -> None:
        """Raise if options are inconsistent or a library is missing."""
        if callable(self.to):
            if self.decode or self.ragged:
                raise InvalidInputError(
                    "decode and ragged require an output format; `to` is a function"
                )
            return
        self._check_undecodable()
        if self.to not in get_args(Form):
            raise InvalidInputError(
                "unknown output format", to=self.to, expected=list(get_args(Form))
            )
        if self.pin_memory and self.to != "torch":
            raise InvalidInputError(
                "only PyTorch tensors can be pinned; use to='torch'", to=self.to
            )
        if (self.decode or self.ragged) and self.to == "arrow":
            raise InvalidInputError(
                "decoded values and ragged columns cannot be converted to Arrow; use another `to`"
            )
        if both := sorted(set(self.decode).intersection(self.ragged)):
            raise InvalidInputError("a column is either decoded or ragged", columns=both)
        _split(self.to)
        object.__setattr__(self, "decode", {n: decoder_of(each) for n, each in self.decode.items()})

    def _check_undecodable(self) -> None:
        policy = self.undecodable
        columns = list(policy) if isinstance(policy, Mapping) else []
        if columns != [] and set(columns) - set(self.decode):
            raise InvalidInputError(
                "replacements must be for columns that are decoded",
                columns=columns,
                decoded=list(self.decode),
            )
        if not isinstance(policy, Mapping) and policy not in ("raise", "skip"):
            raise InvalidInputError(
                "undecodable must be 'raise', 'skip' or a replacement by column", found=policy
            )

    def __call__(self, rows: Any, sizes: Sequence[int], locate: Locate) -> list[tuple[Any, int]]:
        """Convert rows to batches of the given sizes, each with its number of skipped samples.

        Raises:
            InvalidInputError: A value could not be decoded, or no sample of a batch.
        """
        if isinstance(rows, StoredRows) and not self.accepts_stored:
            rows = rows.to_table()
        decoded, failed = self._decode(rows, locate)
        skipped = [0] * len(sizes)
        if failed:
            keep = np.ones(sum(sizes), np.bool_)
            keep[sorted(failed)] = False
            remaining = [int(part.sum()) for part in parts_of(keep, sizes)]
            for size, left in zip(sizes, remaining, strict=True):
                if not left:
                    error = next(iter(failed.values()))
                    raise InvalidInputError(
                        "no sample of a batch can be decoded", size=size
                    ) from error
            skipped = [size - left for size, left in zip(sizes, remaining, strict=True)]
            sizes = remaining
            rows = _selected(rows.to_table() if isinstance(rows, StoredRows) else rows, keep)
            decoded = {name: _selected(values, keep) for name, values in decoded.items()}
        if callable(self.to):
            batches = self.to(rows, sizes)
        else:
            batches = self._batches(rows, sizes, self.to, decoded)
        if self.pin_memory and _has_cuda():
            batches = [_pinned(batch) for batch in batches]
        if self.collate is not None:
            batches = list(map(self.collate, batches))
        return list(zip(batches, skipped, strict=True))

    @property
    def accepts_stored(self) -> bool:
        """Whether rows in storage order avoid a copy."""
        return self.to in ("numpy", "torch")

    def _decode(
        self, rows: Any, locate: Locate
    ) -> tuple[dict[str, list[Any]], dict[int, Exception]]:
        """Return the decoded values by column, and the errors by index of skipped samples."""
        names = _names(rows)
        unknown = [name for name in (*self.decode, *self.ragged) if name not in names]
        if unknown:
            raise InvalidInputError("columns to convert are not read", unknown=unknown)
        failed: dict[int, Exception] = {}
        decoded: dict[str, list[Any]] = {}
        for name, decode in self.decode.items():
            column = decoded[name] = []
            for index, value in enumerate(_values(_values_of(rows, name))):
                try:
                    column.append(None if value is None else decode(value))
                except Exception as error:
                    if isinstance(self.undecodable, Mapping) and name in self.undecodable:
                        column.append(self.undecodable[name])
                        continue
                    if self.undecodable == "skip":
                        column.append(None)
                        failed[index] = error
                        continue
                    raise InvalidInputError(
                        f"a value could not be decoded ({error}); pass undecodable='skip' or "
                        "undecodable={column: replacement}",
                        column=name,
                        **locate(index),
                    ) from error
        return decoded, failed

    def _batches(
        self, rows: Any, sizes: Sequence[int], form: str, decoded: Mapping[str, list[Any]]
    ) -> Sequence[Any]:
        columns: dict[str, Sequence[Any]]
        if form == "arrow":
            if isinstance(rows, pa.Table):
                return parts_of(rows, sizes)
            columns = {name: parts_of(values, sizes) for name, values in rows.items()}
        else:
            split = _split(form)
            columns = {}
            for name in _names(rows):
                if name in decoded:
                    parts = parts_of(decoded[name], sizes)
                    columns[name] = [_stacked(part, split) for part in parts]
                    continue
                if name not in self.ragged and (views := _binary_views(rows, name, form)):
                    columns[name] = parts_of(views, sizes)
                    continue
                values = _values_of(rows, name)
                # Values in a new order are in memory of their own, which the caller may modify.
                is_owned = isinstance(rows, StoredRows) and rows.positions is not None
                if isinstance(values, pa.ChunkedArray):
                    is_owned = values.num_chunks > 1
                    values = values.combine_chunks()
                split_values = _split_owned if is_owned and form == "torch" else split
                if name in self.ragged:
                    columns[name] = _ragged(name, values, sizes, split_values)
                else:
                    columns[name] = _columns(values, sizes, split_values, form)
        return [
            dict(zip(columns, batch, strict=True)) for batch in zip(*columns.values(), strict=True)
        ]


def _names(rows: Any) -> list[str]:
    return list(rows.schema.names if isinstance(rows, pa.Table | StoredRows) else rows)


def _values_of(rows: Any, name: str) -> Any:
    """Return a column in the order of the samples."""
    return rows.column(name) if isinstance(rows, StoredRows) else rows[name]


def _binary_views(rows: Any, name: str, form: str) -> list[Any] | None:
    """Return an array of bytes per value in the order of the samples, or None for other types.

    Values are not copied to that order, nor to one array.
    """
    if not isinstance(rows, pa.Table | StoredRows) or not is_binary(rows.schema.field(name).type):
        return None
    positions = rows.positions if isinstance(rows, StoredRows) else None
    if isinstance(rows, StoredRows) and name in rows.ordered:
        chunks, positions = [rows.ordered[name]], None
    else:
        chunks = rows.chunks(name) if isinstance(rows, StoredRows) else rows[name].chunks
    stored = [view for chunk in chunks for view in _binary(chunk, form)]
    if positions is None:
        return stored
    views: list[Any] = [None] * len(stored)
    for position, view in zip(positions.tolist(), stored, strict=True):
        views[position] = view
    return views


def _selected(values: Any, keep: npt.NDArray[np.bool_]) -> Any:
    """Return the samples of a mask."""
    if isinstance(values, Mapping):
        return {name: _selected(each, keep) for name, each in values.items()}
    if isinstance(values, pa.Table):
        return values.filter(pa.array(keep))
    return values[keep] if isinstance(values, np.ndarray) else list(compress(values, keep.tolist()))


def _columns(values: Any, sizes: Sequence[int], split: ToBatches, form: str) -> Sequence[Any]:
    """Return the values of a column for each batch."""
    numbers = None
    if isinstance(values, np.ndarray):
        numbers = values
    elif isinstance(values, pa.Array) and not values.null_count:
        # Batches with nulls become lists, independent of other batches read with them.
        numbers, is_bfloat16 = numbers_of(values)
        numbers = None if is_bfloat16 else numbers
    if numbers is not None:
        return split(numbers, sizes)
    return [_column(part, split, form) for part in parts_of(values, sizes)]


def _column(values: Any, split: ToBatches, form: str) -> Any:
    """Return the values of a column for one batch."""
    if not isinstance(values, pa.Array):
        return values
    numbers, is_bfloat16 = numbers_of(values)
    if numbers is None and is_binary(values.type):
        return _binary(values, form)
    if numbers is None or is_bfloat16 or values.null_count:
        return values.to_pylist()
    return split(numbers, [len(values)])[0]


def _stacked(decoded: list[Any], split: ToBatches) -> Any:
    """Return decoded arrays or tensors of equal shape as one, for any library."""
    kinds = {(getattr(e, "shape", None), str(getattr(e, "dtype", None))) for e in decoded}
    if len(kinds) != 1 or None in next(iter(kinds)):
        return decoded
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(decoded[0], torch.Tensor):
        # Supports all devices and types, including types that NumPy lacks.
        return torch.stack(decoded)
    return split(np.stack([np.asarray(each) for each in decoded]), [len(decoded)])[0]


def _ragged(name: str, values: Any, sizes: Sequence[int], split: ToBatches) -> list[Ragged]:
    """Return the values of a column for each batch, and the offsets of rows."""
    numbers = offsets = None
    if isinstance(values, pa.Array) and not values.null_count:
        if is_binary(values.type) or _is_text(values.type):
            numbers, offsets = _bytes_and_offsets(values)
        elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            offsets = np.asarray(values.offsets).astype(np.int64)
            items = values.values
            if not items.null_count:
                numbers, is_bfloat16 = numbers_of(items)
                numbers = None if is_bfloat16 else numbers
    if numbers is None or offsets is None:
        raise InvalidInputError(
            "a ragged column must contain lists of numbers, binary values or strings without nulls",
            column=name,
        )
    ends = np.cumsum([0, *sizes])
    bounds = offsets[ends]
    parts = split(numbers[bounds[0] : bounds[-1]], np.diff(bounds).tolist())
    return [
        Ragged(part, split(offsets[first : last + 1] - offsets[first], [last + 1 - first])[0])
        for part, first, last in zip(parts, ends[:-1], ends[1:], strict=True)
    ]


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _binary(values: pa.Array, form: str) -> list[Any]:
    """Return an array of bytes per value, or None for nulls."""
    data, offsets = _bytes_and_offsets(values)
    sizes = np.diff(offsets).tolist()
    data = data[offsets[0] : offsets[-1]]
    views = list(shared_tensor(data).split(sizes) if form == "torch" else parts_of(data, sizes))
    _set_nulls(views, values)
    return views


def _set_nulls(views: list[Any], values: pa.Array) -> None:
    if values.null_count:
        for index in np.flatnonzero(values.is_null()).tolist():
            views[index] = None


def _bytes_and_offsets(
    values: pa.Array,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of binary values or strings, and the offset of each value and the end."""
    _, offsets, data = values.buffers()
    is_large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    width = np.int64 if is_large else np.int32
    ends = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data or b"", np.uint8), ends.astype(np.int64)


def _values(values: Any) -> Any:
    """Return the values; binary values are views of the batch."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        return values
    if not is_binary(values.type):
        return values.to_pylist()
    data = values.buffers()[2] or pa.py_buffer(b"")
    offsets = _bytes_and_offsets(values)[1].tolist()
    views = [data.slice(at, end - at) for at, end in pairwise(offsets)]
    _set_nulls(views, values)
    return views


def _split(form: str) -> ToBatches:
    """Return a function that splits a NumPy array into arrays of an output format."""
    if form == "torch":
        return _split_tensor()
    if form == "jax":
        try:
            from jax import numpy as jnp  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UnsupportedError("to='jax' requires JAX: pip install jax") from error
        return lambda values, sizes: [jnp.asarray(part) for part in parts_of(values, sizes)]
    return parts_of


def _split_tensor() -> ToBatches:
    from lancelet.torch.required import require_torch  # noqa: PLC0415 - an extra

    require_torch()

    def split(values: Any, sizes: Sequence[int]) -> Sequence[Any]:
        # PyTorch has no read-only tensors, and the caller may modify the result.
        return _split_owned(values if values.flags.writeable else _copied(values), sizes)

    return split


def _split_owned(values: Any, sizes: Sequence[int]) -> Sequence[Any]:
    """Split memory that nothing else refers to into tensors."""
    if values.dtype.kind == "u" and values.dtype.itemsize > 1:
        values = values.astype(f"i{min(8, values.dtype.itemsize * 2)}")
    parts: Sequence[Any] = shared_tensor(values).split(list(sizes))
    return parts


def _copied(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    recycled = recycled_bytes(values.nbytes)
    if recycled is None:
        return values.copy()
    copy: npt.NDArray[Any] = recycled.view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def _has_cuda() -> bool:
    from lancelet.torch.required import require_torch  # noqa: PLC0415 - an extra

    return bool(require_torch().cuda.is_available())


def _pinned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pinned(each) for name, each in value.items()}
    if isinstance(value, Ragged):
        return Ragged(*map(_pinned, value))
    return value.pin_memory() if hasattr(value, "pin_memory") else value

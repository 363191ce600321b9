"""Conversion of batches to Arrow, NumPy, PyTorch or JAX.

Numbers and numeric vectors are not copied if their layout permits it. Several batches are converted
together:

    rows of 3 batches ──one conversion per column──> a tensor ──split──> 3 views without copies

Other values become lists of Python objects, which can be converted by `decode` or `collate`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.torch.tensors import numbers_of, parts_of
from lancelet.training.decoders import decoder_of
from lancelet.values import dataclass

Form = Literal["arrow", "numpy", "torch", "jax"]
ToBatches = Callable[[Any, Sequence[int]], Sequence[Any]]
"""Converts rows to batches of the given sizes."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts rows to batches. Picklable, for use in spawned workers.

    Attributes:
        to: The output format, or a function that creates batches.
        decode: A function or decoder name per column that converts each value.
        collate: Converts each batch to the yielded value.
        pin_memory: Whether tensors are copied to pinned memory.
    """

    to: str | ToBatches
    decode: Mapping[str, Any] = field(default_factory=dict)
    collate: Callable[[Any], Any] | None = None
    pin_memory: bool = False

    def __post_init__(self) -> None:
        """Raise if options are inconsistent or a library is missing."""
        if callable(self.to):
            if self.decode:
                raise InvalidInputError("decode requires an output format; `to` is a function")
            return
        if self.to not in get_args(Form):
            raise InvalidInputError(
                "unknown output format", to=self.to, expected=list(get_args(Form))
            )
        if self.pin_memory and self.to != "torch":
            raise InvalidInputError(
                "only PyTorch tensors can be pinned; use to='torch'", to=self.to
            )
        if self.decode and self.to == "arrow":
            raise InvalidInputError("decoded values cannot be converted to Arrow; use another `to`")
        _split(self.to)
        object.__setattr__(self, "decode", {n: decoder_of(each) for n, each in self.decode.items()})

    def __call__(self, rows: Any, sizes: Sequence[int]) -> list[Any]:
        """Convert rows to batches of the given sizes."""
        batches = self.to(rows, sizes) if callable(self.to) else self._batches(rows, sizes, self.to)
        if self.pin_memory and _has_cuda():
            batches = [_pinned(batch) for batch in batches]
        return list(batches if self.collate is None else map(self.collate, batches))

    def _batches(self, rows: Any, sizes: Sequence[int], form: str) -> Sequence[Any]:
        columns: dict[str, Sequence[Any]]
        if form == "arrow":
            if isinstance(rows, pa.Table):
                return parts_of(rows, sizes)
            columns = {name: parts_of(values, sizes) for name, values in rows.items()}
        else:
            names = rows.schema.names if isinstance(rows, pa.Table) else list(rows)
            unknown = [name for name in self.decode if name not in names]
            if unknown:
                raise InvalidInputError("columns to decode are not read", unknown=unknown)
            split = _split(form)
            columns = {n: _columns(rows[n], sizes, self.decode.get(n), split) for n in names}
        return [
            dict(zip(columns, batch, strict=True)) for batch in zip(*columns.values(), strict=True)
        ]


def _columns(
    values: Any, sizes: Sequence[int], decode: Callable[[Any], Any] | None, split: ToBatches
) -> Sequence[Any]:
    """Return the values of a column for each batch."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    numbers = None
    if decode is None and isinstance(values, np.ndarray):
        numbers = values
    elif decode is None and isinstance(values, pa.Array) and not values.null_count:
        # Batches with nulls become lists, independent of other batches read with them.
        numbers, is_bfloat16 = numbers_of(values)
        numbers = None if is_bfloat16 else numbers
    if numbers is not None:
        return split(numbers, sizes)
    return [_column(part, decode, split) for part in parts_of(values, sizes)]


def _column(values: Any, decode: Callable[[Any], Any] | None, split: ToBatches) -> Any:
    """Return the values of a column for one batch."""
    if decode is not None:
        decoded = [None if each is None else decode(each) for each in _values(values)]
        # Arrays and tensors of equal shape are stacked, for any library.
        kinds = {(getattr(e, "shape", None), str(getattr(e, "dtype", None))) for e in decoded}
        if len(kinds) == 1 and None not in next(iter(kinds)):
            torch = sys.modules.get("torch")
            if torch is not None and isinstance(decoded[0], torch.Tensor):
                # Supports all devices and types, including types that NumPy lacks.
                return torch.stack(decoded)
            return split(np.stack([np.asarray(each) for each in decoded]), [len(decoded)])[0]
        return decoded
    if not isinstance(values, pa.Array):
        return values
    numbers, is_bfloat16 = numbers_of(values)
    if numbers is None or is_bfloat16 or values.null_count:
        return values.to_pylist()
    return split(numbers, [len(values)])[0]


def _values(values: Any) -> Any:
    """Return an iterable of values; binary values are views of the batch."""
    if isinstance(values, pa.Array):
        is_bytes = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
        if is_bytes:
            return (each.as_buffer() if each.is_valid else None for each in values)
        return values.to_pylist()
    return values


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

    torch = require_torch()

    def split(values: Any, sizes: Sequence[int]) -> Sequence[Any]:
        if values.dtype.kind == "u" and values.dtype.itemsize > 1:
            values = values.astype(f"i{min(8, values.dtype.itemsize * 2)}")
        if not values.flags.writeable:
            # PyTorch has no read-only tensors, and the caller may modify the result.
            values = values.copy()
        parts: Sequence[Any] = torch.from_numpy(values).split(list(sizes))
        return parts

    return split


def _has_cuda() -> bool:
    from lancelet.torch.required import require_torch  # noqa: PLC0415 - an extra

    return bool(require_torch().cuda.is_available())


def _pinned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pinned(each) for name, each in value.items()}
    return value.pin_memory() if hasattr(value, "pin_memory") else value

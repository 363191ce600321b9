"""A batch in the form that a program wants: Arrow, arrays of NumPy, tensors of PyTorch or of JAX.

Numbers and vectors of numbers are not copied where their layout allows it. What is no number stays
a list of Python's values, which a `decode` of its column or a `collate` makes something of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.torch.tensors import numbers_of
from lancelet.values import dataclass

Form = Literal["arrow", "numpy", "torch", "jax"]


@dataclass(frozen=True, slots=True)
class Converter:
    """Makes a batch of rows; it is pickled for workers that are new processes.

    Attributes:
        to: The form.
        decode: A function for each of some columns, that makes a value of one that was read.
        collate: Makes what is yielded of a batch in its form.
        pin_memory: Whether tensors are put where a GPU fetches them from.
    """

    to: str
    decode: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    collate: Callable[[Any], Any] | None = None
    pin_memory: bool = False

    def __post_init__(self) -> None:
        """Raise if options contradict each other, or a library is missing."""
        if self.to not in get_args(Form):
            raise InvalidInputError("no such form", to=self.to, known=list(get_args(Form)))
        if self.pin_memory and self.to != "torch":
            raise InvalidInputError(
                "only tensors of PyTorch are put into pinned memory", to=self.to
            )
        if self.decode and self.to == "arrow":
            raise InvalidInputError("what is decoded is no Arrow any more; choose another form")
        _number(self.to)

    def __call__(self, rows: Any) -> Any:
        """Return a batch in its form."""
        collate = self.collate
        if self.to == "arrow":
            return rows if collate is None else collate(rows)
        names, decode, number = _names(rows), self.decode, _number(self.to)
        unknown = [name for name in decode if name not in names]
        if unknown:
            raise InvalidInputError("columns to decode are not read", unknown=unknown)
        batch = {name: _column(rows[name], decode.get(name), number) for name in names}
        if self.pin_memory:
            batch = {name: _pinned(value) for name, value in batch.items()}
        return batch if collate is None else collate(batch)


def _names(rows: Any) -> list[str]:
    return rows.schema.names if isinstance(rows, pa.Table) else list(rows)


def _column(values: Any, decode: Callable[[Any], Any] | None, number: Any) -> Any:
    if isinstance(values, np.ndarray):
        return number(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if decode is not None:
        decoded = [None if each is None else decode(each) for each in _values(values)]
        arrays = [each for each in decoded if isinstance(each, np.ndarray)]
        is_alike = len({(each.shape, each.dtype) for each in arrays}) == 1
        return number(np.stack(arrays)) if is_alike and len(arrays) == len(decoded) else decoded
    if not isinstance(values, pa.Array):
        return values
    numbers, is_bfloat16 = numbers_of(values)
    if numbers is None or is_bfloat16 or values.null_count:
        return values.to_pylist()
    return number(numbers)


def _values(values: Any) -> Any:
    """Return values one by one; bytes as views of the batch that are not copied."""
    if isinstance(values, pa.Array):
        is_bytes = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
        if is_bytes:
            return (each.as_buffer() if each.is_valid else None for each in values)
        return values.to_pylist()
    return values


def _number(to: str) -> Callable[[Any], Any]:
    if to == "torch":
        return _torch_number()
    if to == "jax":
        try:
            from jax import numpy as jnp  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UnsupportedError("to='jax' needs JAX: pip install jax") from error
        asarray: Callable[[Any], Any] = jnp.asarray
        return asarray
    return lambda values: values


def _torch_number() -> Callable[[Any], Any]:
    from lancelet.torch.required import require_torch  # noqa: PLC0415 - an extra

    torch = require_torch()

    def number(values: Any) -> Any:
        if values.dtype.kind == "u" and values.dtype.itemsize > 1:
            values = values.astype(f"i{min(8, values.dtype.itemsize * 2)}")
        if not values.flags.writeable:
            # PyTorch has no tensors that are read-only, and a program may write into one.
            values = values.copy()
        return torch.from_numpy(values)

    return number


def _pinned(value: Any) -> Any:
    return value.pin_memory() if hasattr(value, "pin_memory") else value

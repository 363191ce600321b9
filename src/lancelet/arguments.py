"""Validation of arguments of the public readers and writers.

Wrong types raise `ArgumentTypeError`, and integers out of range raise `OutOfRangeError`. Both are
subclasses of `InvalidInputError` and of the built-in classes raised by pylance.

>>> whole_number("batch_size", np.int32(7), least=1, bits=32)
7
>>> text("path", 7)
Traceback (most recent call last):
    ...
lancelet.arguments.ArgumentTypeError: an argument has the wrong type; ... found='int')
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.io.options import FSSPEC
from lancelet.io.store import BytesLike

T = TypeVar("T")


class ArgumentTypeError(InvalidInputError, TypeError):
    """An argument has an unsupported type."""


class OutOfRangeError(InvalidInputError, OverflowError):
    """A number is negative, or exceeds the maximum of its integer type."""


def instance(name: str, value: object, *types: type[T]) -> T:
    """Return the value, or raise if it is not an instance of `types`."""
    if isinstance(value, types):
        return value
    raise _wrong_type(name, value, " or ".join(dict.fromkeys(each.__name__ for each in types)))


def flag(name: str, value: object) -> bool:
    """Return the value as a bool, or raise if it is not a Python or NumPy bool."""
    return bool(instance(name, value, bool, np.bool_))


def text(name: str, value: object) -> str:
    """Return the value, or raise if it is not a string."""
    return instance(name, value, str)


def texts(name: str, values: object) -> list[str]:
    """Return the values as a list, or raise unless they are an iterable of strings."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _wrong_type(name, values, "sequence of str")
    return [text(name, value) for value in values]


def settings(name: str, values: object) -> dict[str, str]:
    """Return the values as a dict, or raise unless they map strings to strings."""
    return {text(name, key): text(name, value) for key, value in mapping(name, values).items()}


def store_settings(name: str, values: object) -> dict[str, Any]:
    """Return storage options as a dict of strings; `fsspec` is validated by its store."""
    return {
        text(name, key): value if key == FSSPEC else text(f"{name}[{key!r}]", value)
        for key, value in mapping(name, values).items()
    }


def edits(name: str, values: object) -> dict[str, str | None]:
    """Return the values as a dict, or raise unless they map strings to strings or None.

    >>> edits("values", {"owner": "ann", "stage": None})
    {'owner': 'ann', 'stage': None}
    """
    return {
        text(name, key): None if value is None else text(name, value)
        for key, value in mapping(name, values).items()
    }


def mapping(name: str, values: object) -> Mapping[Any, Any]:
    """Return the values, or raise if they are not a mapping."""
    if not isinstance(values, Mapping):
        raise _wrong_type(name, values, "mapping")
    return values


def integer(name: str, value: object) -> int:
    """Return the value as an int, or raise if it is not a signed 64-bit integer."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # raises TypeError
    except TypeError as error:
        raise _wrong_type(name, value, "int") from error
    if not -(1 << 63) <= number < 1 << 63:
        raise OutOfRangeError("an integer is out of range", argument=name, found=number, bits=64)
    return number


def whole_number(name: str, value: object, *, least: int = 0, bits: int = 64) -> int:
    """Return the value as an int, or raise if it is not an unsigned integer of `bits` bits."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # raises TypeError
    except TypeError as error:
        raise _wrong_type(name, value, "int") from error
    if not 0 <= number < 1 << bits:
        raise OutOfRangeError(
            "an integer is negative or too large", argument=name, found=number, bits=bits
        )
    if number < least:
        raise InvalidInputError("an integer is too small", argument=name, found=number, least=least)
    return number


def bytes_of(name: str, value: object) -> BytesLike:
    """Return the value as bytes; lists of integers from 0 to 255 are converted."""
    if isinstance(value, list | tuple):
        return bytes(whole_number(name, number, bits=8) for number in value)
    try:
        memoryview(value)  # type: ignore[arg-type]  # raises TypeError
    except TypeError as error:
        raise _wrong_type(name, value, "bytes-like object") from error
    return value  # type: ignore[return-value]  # supports the buffer protocol


def row_numbers(name: str, values: Sequence[int] | np.ndarray) -> Int64s:
    """Return row indices as an array; floats and strings raise instead of being converted."""
    try:
        rows = np.asarray(values)
    except ValueError as error:  # sequences of several lengths
        raise _wrong_type(name, values, "sequence of int") from error
    if rows.ndim != 1:
        raise _wrong_type(name, values, "sequence of int")
    if rows.dtype.kind not in "biu":
        # Includes integers too large for any NumPy integer type.
        rows = np.array([whole_number(name, row) for row in rows.tolist()], np.uint64)
    if rows.dtype == np.uint64:
        rows = np.minimum(rows, np.uint64(np.iinfo(np.int64).max))
    return rows.astype(np.int64, copy=False)


def _wrong_type(name: str, value: object, expected: str) -> ArgumentTypeError:
    is_plain = expected == "str" and isinstance(value, bool | int | float)
    hint = f"; write {str(value).lower()!r}" if is_plain else ""
    return ArgumentTypeError(
        f"an argument has the wrong type{hint}",
        argument=name,
        expected=expected,
        found=type(value).__name__,
    )

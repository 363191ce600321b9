"""Checks of what callers of the public readers and writers pass, made before anything is done.

What has another type raises `ArgumentTypeError`, a number that does not fit its bits
`OutOfRangeError`; both are `InvalidInputError`s and the built-in classes that pylance raises.

>>> whole_number("batch_size", np.int32(7), least=1, bits=32)
7
>>> text("path", 7)
Traceback (most recent call last):
    ...
lancelet.file.arguments.ArgumentTypeError: an argument has another type than ... found='int')
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
    """An argument has another type than it must have."""


class OutOfRangeError(InvalidInputError, OverflowError):
    """A number is negative, or larger than the largest of its kind."""


def instance(name: str, value: object, *types: type[T]) -> T:
    """Return a value that must be of one of some types."""
    if isinstance(value, types):
        return value
    raise _wrong_type(name, value, " or ".join(each.__name__ for each in types))


def flag(name: str, value: object) -> bool:
    """Return a value that must be true or false, which a number or a text is not."""
    return bool(instance(name, value, bool, np.bool_))


def text(name: str, value: object) -> str:
    """Return a value that must be a string."""
    return instance(name, value, str)


def texts(name: str, values: object) -> list[str]:
    """Return values that must be a sequence of strings, and not a single one."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _wrong_type(name, values, "sequence of str")
    return [text(name, value) for value in values]


def settings(name: str, values: object) -> dict[str, str]:
    """Return values that must be a mapping of strings to strings."""
    return {text(name, key): text(name, value) for key, value in mapping(name, values).items()}


def store_settings(name: str, values: object) -> dict[str, Any]:
    """Return storage options: strings by their names, but for `fsspec`, which has its own check."""
    return {
        text(name, key): value if key == FSSPEC else text(f"{name}[{key!r}]", value)
        for key, value in mapping(name, values).items()
    }


def edits(name: str, values: object) -> dict[str, str | None]:
    """Return values that must be a mapping of strings to strings, or to None to take one away.

    >>> edits("values", {"owner": "ann", "stage": None})
    {'owner': 'ann', 'stage': None}
    """
    return {
        text(name, key): None if value is None else text(name, value)
        for key, value in mapping(name, values).items()
    }


def mapping(name: str, values: object) -> Mapping[Any, Any]:
    """Return values that must be a mapping."""
    if not isinstance(values, Mapping):
        raise _wrong_type(name, values, "mapping")
    return values


def integer(name: str, value: object) -> int:
    """Return a value that must be a whole number of 64 bits, with a sign."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what it is for
    except TypeError as error:
        raise _wrong_type(name, value, "int") from error
    if not -(1 << 63) <= number < 1 << 63:
        raise OutOfRangeError("a number is too large", argument=name, found=number, bits=64)
    return number


def whole_number(name: str, value: object, *, least: int = 0, bits: int = 64) -> int:
    """Return a value that must be a whole number of so many bits without a sign."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what it is for
    except TypeError as error:
        raise _wrong_type(name, value, "int") from error
    if not 0 <= number < 1 << bits:
        raise OutOfRangeError(
            "a number is negative or too large", argument=name, found=number, bits=bits
        )
    if number < least:
        raise InvalidInputError("a number is too small", argument=name, found=number, least=least)
    return number


def bytes_of(name: str, value: object) -> BytesLike:
    """Return a value that must be bytes, or a list of numbers that are such."""
    if isinstance(value, list | tuple):
        return bytes(whole_number(name, number, bits=8) for number in value)
    try:
        memoryview(value)  # type: ignore[arg-type]  # what it is for
    except TypeError as error:
        raise _wrong_type(name, value, "bytes-like object") from error
    return value  # type: ignore[return-value]  # it has the buffer protocol


def row_numbers(name: str, values: Sequence[int]) -> Int64s:
    """Return numbers of rows; fractions and texts are not rounded or parsed to some row."""
    try:
        rows = np.asarray(values)
    except ValueError as error:  # sequences of several lengths
        raise _wrong_type(name, values, "sequence of int") from error
    if rows.ndim != 1:
        raise _wrong_type(name, values, "sequence of int")
    if rows.dtype.kind not in "biu":
        # Also what is too large for any type of NumPy.
        rows = np.array([whole_number(name, row) for row in rows.tolist()], np.uint64)
    if rows.dtype == np.uint64:
        rows = np.minimum(rows, np.uint64(np.iinfo(np.int64).max))
    return rows.astype(np.int64, copy=False)


def _wrong_type(name: str, value: object, expected: str) -> ArgumentTypeError:
    is_plain = expected == "str" and isinstance(value, bool | int | float)
    hint = f"; write {str(value).lower()!r}" if is_plain else ""
    return ArgumentTypeError(
        f"an argument has another type than it must have{hint}",
        argument=name,
        expected=expected,
        found=type(value).__name__,
    )

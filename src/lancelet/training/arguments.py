"""Validation of the arguments of plans and loaders."""

from __future__ import annotations

import numbers

from lancelet.errors import InvalidInputError


class ArgumentTypeError(InvalidInputError, TypeError):
    """An argument has the wrong type."""


def is_integer(value: object) -> bool:
    """Return whether a value is an integer, including those of NumPy, but not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_booleans(**arguments: object) -> None:
    """Raise for arguments that are not True or False."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ArgumentTypeError(f"{name} must be True or False", found=value)


def check_integers(*, allow_none: bool = False, **arguments: object) -> None:
    """Raise for arguments that are not integers."""
    for name, value in arguments.items():
        if not is_integer(value) and not (allow_none and value is None):
            raise ArgumentTypeError(f"{name} must be an integer", found=value)

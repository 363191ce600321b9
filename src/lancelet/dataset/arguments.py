"""Validation of the arguments of public methods.

The annotation of an argument declares its type. `checks_types` rejects other types before the
method runs, where they could be mistaken for a valid value: "no" for a bool is true.

    @checks_types
    def clean(folder: str, delete_unverified: bool = False, versions: int | None = None): ...

Errors derive from the built-in exceptions of pylance. Methods handle None themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from inspect import CO_VARKEYWORDS
from types import CodeType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from lancelet.arguments import (
    flag,
    instance,
    mapping,
    row_numbers,
    store_settings,
    text,
    texts,
    whole_number,
)
from lancelet.buffers import Int64s
from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError, similar_names
from lancelet.scan.scan_options import Columns

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Check = Callable[[str, object], object]

_CHECKS: Final[Mapping[str, Check]] = {
    "bool": flag,
    "int": whole_number,
    "str": text,
    "list[str]": texts,
    # An iterator can be read once only, by the method.
    "Sequence[str]": lambda name, given: isinstance(given, Iterator) or texts(name, given),
    "Mapping[str, str]": store_settings,
    "Mapping[str, Any]": mapping,
    "timedelta": lambda name, given: instance(name, given, timedelta),
    "Session": lambda name, given: instance(name, given, Session),
}
"""The check of each annotation; values of other annotations are validated by the method."""


def checks_of(annotations: Mapping[str, str]) -> dict[str, Check]:
    """Return the checks of arguments by name.

    >>> checks_of({"name": "str | None", "data": "Any"})["name"].__name__
    'text'
    """
    kinds = {name: kind.removesuffix(" | None") for name, kind in annotations.items()}
    return {name: _CHECKS[kind] for name, kind in kinds.items() if kind in _CHECKS}


def checks_types(function: F) -> F:
    """Decorate a public method to validate its arguments.

    >>> @checks_types
    ... def clean(folder: str, delete_unverified: bool = False): ...
    >>> clean("a", delete_unverified="no")
    Traceback (most recent call last):
        ...
    lancelet.arguments.ArgumentTypeError: an argument has the wrong type ... found='str')
    """
    code: CodeType = function.__code__
    names = code.co_varnames[: code.co_argcount]
    checks = checks_of(function.__annotations__)

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        refuse_unknown(function, options, code)
        for name, value in (*zip(names, arguments, strict=False), *options.items()):
            if value is not None and name in checks:
                checks[name](name, value)
        return function(*arguments, **options)

    return checked  # type: ignore[return-value]  # same call signature


def suggests_names(function: F, target: Callable[..., Any] | None = None) -> F:
    """Decorate a method to suggest similar names for an unknown argument of it or of `target`."""
    code: CodeType = (target or function).__code__

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError:
            refuse_unknown(function, options, code)
            raise

    return checked  # type: ignore[return-value]  # same call signature


def refuse_unknown(method: Callable[..., Any], options: Iterable[str], code: CodeType) -> None:
    """Raise for the first option that is no argument of the code, and suggest a name."""
    accepted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    wrong = next((name for name in options if name not in accepted), None)
    if wrong is None or code.co_flags & CO_VARKEYWORDS:
        return
    names = [name for name in accepted if name not in {"self", "cls"}]
    hint = similar_names(wrong, names) or f"; it takes {', '.join(names)}"
    name = inspect.unwrap(method).__qualname__
    raise TypeError(f"{name}() got an unexpected keyword argument '{wrong}'{hint}")


def with_clear_errors(owner: type[C]) -> type[C]:
    """Let the errors of inherited public methods name the class and suggest argument names."""
    for part in owner.__mro__[1:]:
        if part.__module__.startswith("lancelet."):
            for name, member in list(vars(part).items()):
                if not inspect.isfunction(member):
                    continue
                inspect.unwrap(member).__qualname__ = f"{owner.__name__}.{name}"
                if not name.startswith("_") and not hasattr(member, "__wrapped__"):
                    setattr(part, name, suggests_names(member))
    return owner


def takes_arguments_of(
    method: Callable[Concatenate[S, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[S, P], T]]:
    """Declare that a method forwards its arguments to `method`, and so has its signature.

    >>> def scanner(self, limit: int | None = None): ...
    >>> @takes_arguments_of(scanner)
    ... def read(self, *arguments, **options) -> str: ...
    >>> str(inspect.signature(read))
    "(self, limit: 'int | None' = None) -> 'str'"
    """

    def decorate(function: Callable[..., T]) -> Callable[Concatenate[S, P], T]:
        own = inspect.signature(function)
        shown = inspect.signature(method).replace(return_annotation=own.return_annotation)
        forwarding = suggests_names(function, method)
        forwarding.__signature__ = shown  # type: ignore[attr-defined]  # functions take attributes
        return forwarding

    return decorate


class ColumnTypeError(InvalidInputError, TypeError):
    """The columns argument has an unsupported type."""


def validated_columns(columns: Sequence[str] | Mapping[str, str] | None) -> Columns:
    """Validate the type of `columns`, and return them as an immutable value."""
    if columns is None or isinstance(columns, Mapping):
        return columns
    if isinstance(columns, str):
        raise ColumnTypeError("columns must be a list of names, not one name", found=columns)
    for column in columns:
        if not isinstance(column, str):
            raise ColumnTypeError("column names must be strings", found=str(type(column)))
    return tuple(columns)


def whole_numbers(numbers: Sequence[int] | pa.Array | np.ndarray) -> Int64s:
    """Convert row numbers to signed 64-bit integers; raise for other types."""
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    if isinstance(numbers, pa.Array):
        numbers = numbers.to_numpy(zero_copy_only=False)
    return row_numbers("indices", numbers)

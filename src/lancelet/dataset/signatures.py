"""Signatures that are written once: methods that take what another method takes.

    @takes_arguments_of(scanner)
    def to_table(self, *arguments, **options): ...

Type checkers see the arguments of `scanner`, `help` and `inspect` do, and the docstring gets its
section of arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_SECTION: Final = "        Args:\n"
_SECTIONS: Final = ("        Returns:\n", "        Yields:\n")


def takes_arguments_of(
    method: Callable[Concatenate[S, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[S, P], T]]:
    """Give a method that passes its arguments on the signature and documentation of another.

    >>> def scanner(self, limit: int | None = None): ...
    >>> @takes_arguments_of(scanner)
    ... def read(self, *arguments, **options) -> str: ...
    >>> str(inspect.signature(read))
    "(self, limit: 'int | None' = None) -> 'str'"
    """

    def decorate(function: Callable[..., T]) -> Callable[Concatenate[S, P], T]:
        own = inspect.signature(function)
        shown = inspect.signature(method).replace(return_annotation=own.return_annotation)
        function.__signature__ = shown  # type: ignore[attr-defined]  # functions take attributes
        function.__doc__ = _with_arguments(function.__doc__ or "", method.__doc__ or "")
        return function

    return decorate


def takes_named_arguments_of(
    method: Callable[..., Any], *, but: tuple[str, ...]
) -> Callable[[F], F]:
    """Show that a method takes those arguments of another by name that it does not name itself.

    >>> def scanner(self, limit=None, prefilter=None, use_stats=None): ...
    >>> @takes_named_arguments_of(scanner, but=("use_stats",))
    ... def read(self, limit=None, **options): ...
    >>> str(inspect.signature(read))
    '(self, limit=None, *, prefilter=None, **options)'
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        *first, last = own.parameters.values()
        named = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, each in inspect.signature(method).parameters.items()
            if name not in {*own.parameters, *but}
        ]
        function.__signature__ = own.replace(parameters=[*first, *named, last])  # type: ignore[attr-defined]  # functions take attributes
        return function

    return decorate


def _with_arguments(text: str, source: str) -> str:
    """Return a docstring with the arguments of another before what it says of results."""
    start = source.find(_SECTION)
    end = min(at for each in _SECTIONS if (at := source.find(each)) >= 0)
    place = min(at for each in _SECTIONS if (at := text.find(each)) >= 0)
    return text if start < 0 else text[:place] + source[start:end] + text[place:]

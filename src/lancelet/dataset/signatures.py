"""Signatures that are written once: methods that take what another method takes.

    @takes_arguments_of(scanner)
    def to_table(self, *arguments, **options): ...

Type checkers see the arguments of `scanner`, `help` and `inspect` do, and the docstring gets its
section of arguments.

    @previews
    def delete(self, predicate, *, dry_run=False) -> DeleteResult | ChangeReport: ...

With `dry_run=True` type checkers see a `ChangeReport`, else a `DeleteResult`. When a program runs,
the method is as it was written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops.dry_run import ChangeReport

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

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


class Previewed(Protocol[P, T_co]):
    """What changes a table, or with `dry_run` reports what it would change."""

    @overload
    def __call__(self, *arguments: Any, dry_run: Literal[True], **options: Any) -> ChangeReport: ...

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T_co: ...


class PreviewedMethod(Protocol[S_contra, P, T_co]):
    """A method of that kind."""

    @overload
    def __get__(
        self, instance: None, owner: type, /
    ) -> Callable[Concatenate[S_contra, P], T_co]: ...

    @overload
    def __get__(self, instance: S_contra, owner: type, /) -> Previewed[P, T_co]: ...


def previews(method: Callable[Concatenate[S, P], T | ChangeReport]) -> PreviewedMethod[S, P, T]:
    """Say of a method that it returns a report if, and only if, it has `dry_run=True`."""
    return cast("PreviewedMethod[S, P, T]", method)


def previews_class(method: Callable[Concatenate[Any, P], T | ChangeReport]) -> Previewed[P, T]:
    """Make a class method of a function, and say the same of it."""
    return cast("Previewed[P, T]", classmethod(method))


def previews_function(function: Callable[P, T | ChangeReport]) -> Previewed[P, T]:
    """Say the same of a function."""
    return cast("Previewed[P, T]", function)


# A dataset has bases without types, so type checkers would take it for a report.


def previews_dataset(
    method: Callable[Concatenate[S, P], LanceDataset | ChangeReport],
) -> PreviewedMethod[S, P, LanceDataset]:
    """Say of a method that it returns a dataset, or with `dry_run=True` a report."""
    return cast("PreviewedMethod[S, P, LanceDataset]", method)


def previews_class_dataset(
    method: Callable[Concatenate[Any, P], LanceDataset | ChangeReport],
) -> Previewed[P, LanceDataset]:
    """Make a class method of a function, and say the same of it."""
    return cast("Previewed[P, LanceDataset]", classmethod(method))


def previews_new_dataset(
    function: Callable[P, LanceDataset | ChangeReport],
) -> Previewed[P, LanceDataset]:
    """Say of a function that it returns a dataset, or with `dry_run=True` a report."""
    return cast("Previewed[P, LanceDataset]", function)


def _with_arguments(text: str, source: str) -> str:
    """Return a docstring with the arguments of another before what it says of results."""
    start = source.find(_SECTION)
    end = min(at for each in _SECTIONS if (at := source.find(each)) >= 0)
    place = min(at for each in _SECTIONS if (at := text.find(each)) >= 0)
    return text if start < 0 else text[:place] + source[start:end] + text[place:]

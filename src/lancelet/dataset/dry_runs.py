"""Types of methods that return a report with `dry_run=True`.

    @previews
    def delete(self, predicate, *, dry_run=False) -> DeleteResult | ChangeReport: ...

Type checkers see the report for `dry_run=True`, and otherwise the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class Previewed(Protocol[P, T_co]):
    """A callable that changes a table, or with `dry_run` returns a report."""

    @overload
    def __call__(self, *arguments: Any, dry_run: Literal[True], **options: Any) -> ChangeReport: ...

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> T_co: ...


class PreviewedMethod(Protocol[S_contra, P, T_co]):
    """A method with the signature of `Previewed`."""

    @overload
    def __get__(
        self, instance: None, owner: type, /
    ) -> Callable[Concatenate[S_contra, P], T_co]: ...

    @overload
    def __get__(self, instance: S_contra, owner: type, /) -> Previewed[P, T_co]: ...


def previews(method: Callable[Concatenate[S, P], T | ChangeReport]) -> PreviewedMethod[S, P, T]:
    """Declare that a method returns a report if `dry_run=True`."""
    return cast("PreviewedMethod[S, P, T]", method)


def previews_class(method: Callable[Concatenate[Any, P], T | ChangeReport]) -> Previewed[P, T]:
    """Declare the same of a function, and make it a class method."""
    return cast("Previewed[P, T]", classmethod(method))


def previews_function(function: Callable[P, T | ChangeReport]) -> Previewed[P, T]:
    """Declare the same of a function."""
    return cast("Previewed[P, T]", function)


# `LanceDataset` has untyped base classes, so type checkers would accept a report for it.


def previews_dataset(
    method: Callable[Concatenate[S, P], LanceDataset | ChangeReport],
) -> PreviewedMethod[S, P, LanceDataset]:
    """Declare that a method returns a dataset, or with `dry_run=True` a report."""
    return cast("PreviewedMethod[S, P, LanceDataset]", method)


def previews_class_dataset(
    method: Callable[Concatenate[Any, P], LanceDataset | ChangeReport],
) -> Previewed[P, LanceDataset]:
    """Declare the same of a function, and make it a class method."""
    return cast("Previewed[P, LanceDataset]", classmethod(method))


def previews_new_dataset(
    function: Callable[P, LanceDataset | ChangeReport],
) -> Previewed[P, LanceDataset]:
    """Declare that a function returns a dataset, or with `dry_run=True` a report."""
    return cast("Previewed[P, LanceDataset]", function)

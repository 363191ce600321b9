"""Validation of arguments of public methods, and shared signatures.

An argument name has the same type in all methods:

    replace, train, detached ...          bool; other types are rejected, since "no" would be true
    conflict_retries, batch_size ...      non-negative int
    name, tag, left_on ...                str
    storage_options, metadata             dict of str to str
    retry_timeout                         timedelta

Other types raise `ArgumentTypeError` before the method runs, and numbers beyond 64 bits raise
`OutOfRangeError`. Both derive from the built-in exceptions of pylance. Methods handle None
themselves.

Methods that forward their arguments have the signature of the target method. Methods with `dry_run`
have an overloaded result type:

    @takes_arguments_of(scanner)
    def to_table(self, *arguments, **options): ...

    @previews
    def delete(self, predicate, *, dry_run=False) -> DeleteResult | ChangeReport: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from inspect import CO_VARKEYWORDS
from types import CodeType
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

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError, similar_names
from lancelet.file.arguments import (
    ArgumentTypeError,
    flag,
    instance,
    mapping,
    settings,
    store_settings,
    text,
    texts,
    whole_number,
)
from lancelet.scan.scan_options import Columns

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[str, object], object]


def _span(name: str, value: object) -> object:
    return instance(name, value, timedelta)


def _session(name: str, value: object) -> object:
    return instance(name, value, Session)


_NAMES: Final[dict[Check, str]] = {
    flag: """
        replace train detached enable_stable_row_ids enable_v2_manifest_paths target_all_bases
        delete_unverified error_if_tagged_old_versions include_files ignore_not_found
        materialize_deletions defer_index_remap filter_nan skip_transpose use_index
        allow_external_blob_outside_bases with_position with_row_address retrain
    """,
    whole_number: """
        conflict_retries max_retries retain_versions delete_rate_limit max_files batch_size
        max_rows_per_file max_rows_per_group max_bytes_per_file data_cache_bytes max_page_bytes
        num_threads target_rows_per_fragment max_source_fragments max_source_rows max_source_bytes
        recent_transactions fragment_id block_size index_cache_size metadata_cache_size
        metadata_cache_size_bytes index_cache_size_bytes read_version
        num_indices_to_merge
    """,
    text: """
        name index_name mode data_storage_version commit_message tag branch left_on right_on
        field_name compaction_mode
    """,
    texts: "read_columns target_bases",
    settings: "metadata",
    store_settings: "storage_options",
    mapping: "read_params",
    _session: "session",
    _span: "retry_timeout timeout commit_timeout",
}

KINDS: Final = {name: check for check, names in _NAMES.items() for name in names.split()}
"""The check of each name."""


def checks_kinds(function: F) -> F:
    """Decorate a public method to validate its arguments by name.

    >>> @checks_kinds
    ... def clean(folder, delete_unverified=False): ...
    >>> clean("a", delete_unverified="no")
    Traceback (most recent call last):
        ...
    lancelet.file.arguments.ArgumentTypeError: an argument has the wrong type ... found='str')
    """
    code: CodeType = function.__code__
    names = code.co_varnames[: code.co_argcount]
    accepted = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    takes_any = bool(code.co_flags & CO_VARKEYWORDS)

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        if not takes_any and not options.keys() <= accepted:
            refuse_unknown(function.__name__, options, code)
        for name, value in (*zip(names, arguments, strict=False), *options.items()):
            if value is not None and name in KINDS:
                KINDS[name](name, value)
        return function(*arguments, **options)

    return checked  # type: ignore[return-value]  # same call signature


def refuse_unknown(method: str, options: Iterable[str], code: CodeType) -> None:
    """Raise if a method has no argument of a given name; suggest similar names."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes = [name for name in names if name not in ("self", "cls")]
    wrong = next((name for name in options if name not in names), None)
    if wrong is None:
        return
    hint = similar_names(wrong, takes)
    raise TypeError(
        f"{method}() got an unexpected keyword argument '{wrong}'{hint or '; it takes'} "
        f"{'' if hint else ', '.join(takes)}".rstrip()
    )


def with_own_qualnames(owner: type[C]) -> type[C]:
    """Set the qualified names of inherited methods to the class, for Python's error messages."""
    for part in owner.__mro__[1:]:
        if part.__module__.startswith("lancelet."):
            documents_results(part)
            for name, member in vars(part).items():
                if inspect.isfunction(member):
                    inspect.unwrap(member).__qualname__ = f"{owner.__name__}.{name}"
    return owner


def documents_results(owner: type[C]) -> type[C]:
    """Add a `Returns:` section to methods with a common result type.

    >>> @documents_results
    ... class Builder:
    ...     def limit(self, rows: int) -> Self:
    ...         '''Limit the rows.
    ...
    ...         Example:
    ...             `builder.limit(5)`
    ...         '''
    >>> print(inspect.getdoc(Builder.limit))
    Limit the rows.
    <BLANKLINE>
    Returns:
        The builder.
    <BLANKLINE>
    Example:
        `builder.limit(5)`
    """
    for member in filter(inspect.isfunction, vars(owner).values()):
        text = member.__doc__ or ""  # missing under `python -OO`
        result = _RESULTS.get(member.__annotations__.get("return", ""))
        positions = [at for each in _LATER_SECTIONS if (at := text.find(each)) >= 0]
        if result and positions and "Returns:\n" not in text:
            position = min(positions)
            indent = text[text.rfind("\n", 0, position) + 1 : position]
            section = f"Returns:\n{indent}    {result}\n\n{indent}"
            member.__doc__ = f"{text[:position]}{section}{text[position:]}"
    return owner


C = TypeVar("C")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

_SECTION: Final = "\nArgs:\n"
_SECTIONS: Final = ("\nReturns:\n", "\nYields:\n")
_LATER_SECTIONS: Final = ("Raises:\n", "Example:\n")
_RESULTS: Final = {
    "Self": "The builder.",
    "ChangeReport | None": "None; with `dry_run`, the `ChangeReport`.",
}
"""The text of the `Returns:` section by return annotation."""


def takes_arguments_of(
    method: Callable[Concatenate[S, P], Any],
) -> Callable[[Callable[..., T]], Callable[Concatenate[S, P], T]]:
    """Copy the signature and the argument documentation of `method` to a forwarding method.

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
    """Add the missing keyword arguments of another method to the displayed signature.

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


def _with_arguments(text: str, source: str) -> str:
    r"""Insert the `Args:` section of another docstring before the results section.

    Docstrings are dedented since Python 3.13, and missing under `python -OO`.

    >>> _with_arguments("Read.\n\nReturns:\n    A table.", "Scan.\n\nArgs:\n    a: A number.")
    'Read.\n\nArgs:\n    a: A number.\n\nReturns:\n    A table.'
    """
    text, source = inspect.cleandoc(text), inspect.cleandoc(source)
    begin = source.find(_SECTION)
    if begin < 0:
        return text
    ends = [at for each in _SECTIONS if (at := source.find(each)) >= 0]
    positions = [at for each in _SECTIONS if (at := text.find(each)) >= 0]
    section = source[begin : min(ends, default=len(source))].rstrip("\n")
    position = min(positions, default=len(text))
    return f"{text[:position]}{section}\n{text[position:]}"


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
    """Convert row numbers to signed 64-bit integers; raise for other types.

    Booleans are converted to 0 and 1, as in Python.
    """
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    if isinstance(numbers, pa.Array):
        numbers = numbers.to_numpy(zero_copy_only=False)
    found = np.asarray(numbers)
    if found.size == 0:
        return np.empty(0, np.int64)
    if found.dtype.kind not in "iub" or found.ndim != 1:
        raise ArgumentTypeError("row indices must be integers", dtype=str(found.dtype))
    return found.astype(np.int64)

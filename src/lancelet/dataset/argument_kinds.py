"""What kind of value each argument of the public methods takes, told by its name.

The methods have pylance's names, and a name means one kind wherever it stands:

    replace, train, detached ...          true or false: a text such as "no" would be true
    conflict_retries, batch_size ...      an integer that is not negative
    name, tag, left_on ...                text
    storage_options, metadata             texts by name
    retry_timeout                         a time span

A value of another kind raises `ArgumentTypeError` before anything is done, and a number that no
64 bits hold `OutOfRangeError`: both are the built-in classes that pylance raises. None is left to
the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import wraps
from inspect import CO_VARKEYWORDS
from types import CodeType
from typing import Any, Final, TypeVar

from lancelet.dataset.session import Session
from lancelet.errors import similar_names
from lancelet.file.arguments import (
    flag,
    instance,
    mapping,
    settings,
    store_settings,
    text,
    texts,
    whole_number,
)

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
    """Let a public method refuse arguments of another kind than their names say.

    >>> @checks_kinds
    ... def clean(folder, delete_unverified=False): ...
    >>> clean("a", delete_unverified="no")
    Traceback (most recent call last):
        ...
    lancelet.file.arguments.ArgumentTypeError: an argument has another type than ... found='str')
    """
    code: CodeType = function.__code__
    names = code.co_varnames[: code.co_argcount]
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    takes_others = bool(code.co_flags & CO_VARKEYWORDS)

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        if not takes_others and not options.keys() <= known:
            raise _unexpected(function.__name__, options, code)
        for name, value in (*zip(names, arguments, strict=False), *options.items()):
            if value is not None and name in KINDS:
                KINDS[name](name, value)
        return function(*arguments, **options)

    return checked  # type: ignore[return-value]  # it is called as the function is


def _unexpected(method: str, options: Iterable[str], code: CodeType) -> TypeError:
    """Return the error for a name that a method does not have, with those that it has."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes = [name for name in names if name not in ("self", "cls")]
    wrong = next(name for name in options if name not in names)
    hint = similar_names(wrong, takes)
    return TypeError(
        f"{method}() got an unexpected keyword argument '{wrong}'{hint or '; it takes'} "
        f"{'' if hint else ', '.join(takes)}".rstrip()
    )

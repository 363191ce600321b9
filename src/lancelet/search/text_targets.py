"""Resolution of text query columns, whose documents are rows or list elements.

  index of tags by element               MatchQuery("fox", "tags")      by element, like the index
  indices by element and by row          MatchQuery("fox", "tags")      rejected as ambiguous
  no index                               MatchQuery("fox", "tags")      by row

A query returns either rows, or elements of a single column.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.format.schema import Schema
from lancelet.index.text.elements import is_list, is_text
from lancelet.search.full_text import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
)
from lancelet.search.text_indices import Target, text_indices
from lancelet.table.snapshot import Snapshot


class NoTextColumnError(FieldNotFoundError, ValueError):
    """Raised if the column of a full-text query does not exist."""


def target_of(
    snapshot: Snapshot, column: str, granularity: DocumentGranularity | None = None
) -> Target:
    """Return the search target of a column, cached with the version."""
    return snapshot.version_cache.get_or_make(
        ("target of texts", column, granularity), lambda: _target(snapshot, column, granularity)
    )


def is_by_element(snapshot: Snapshot, query: FullTextQuery) -> bool:
    """Return whether a query returns list elements. Raise if granularities cannot be combined."""
    if isinstance(query, MatchQuery | PhraseQuery):
        return target_of(snapshot, query.column, query.document_granularity).by_element
    targets = set(_targets(snapshot, query))
    by_element = {target for target in targets if target.by_element}
    if by_element and by_element != targets:
        raise InvalidInputError(
            "FTS queries cannot mix Row and ListElement document granularities",
            columns=sorted({format_path(target.path) for target in targets}),
        )
    if len(by_element) > 1:
        raise InvalidInputError(
            "all leaves in a ListElement FTS query must use the same final field",
            columns=sorted(format_path(target.path) for target in by_element),
        )
    return bool(by_element)


def split_path(schema: Schema, path: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a path into the scanned column and the path within its list elements.

    The second part is empty unless the path continues below a list.
    """
    for end, field in enumerate(schema.fields_on_path(format_path(path)), 1):
        if is_list(field.arrow_type):
            return path[:end], path[end:]
    return path, ()


def _targets(snapshot: Snapshot, query: FullTextQuery) -> Iterator[Target]:
    match query:
        case MatchQuery() | PhraseQuery():
            yield target_of(snapshot, query.column, query.document_granularity)
        case BoostQuery():
            yield from _targets(snapshot, query.positive)
            yield from _targets(snapshot, query.negative)
        case MultiMatchQuery():
            for match in query.queries:
                target = target_of(snapshot, match.column, match.document_granularity)
                if target.by_element:
                    raise UnsupportedError(
                        "MultiMatch does not support ListElement document granularity",
                        column=match.column,
                    )
                yield target
        case CombinedFieldsQuery():
            for column in query.columns:
                if target_of(snapshot, column).by_element:
                    raise UnsupportedError(
                        "combined_fields (BM25F) scores whole rows and needs a Row document "
                        "granularity FTS index on every target column",
                        column=column,
                    )
                yield target_of(snapshot, column, DocumentGranularity.ROW)
        case BooleanQuery():
            for _, each in query.queries:
                yield from _targets(snapshot, each)
        case _:
            raise InvalidInputError("unknown full-text query", found=type(query).__name__)


def _target(snapshot: Snapshot, column: str, granularity: DocumentGranularity | None) -> Target:
    fields = _fields_of_texts(snapshot.schema, column)
    path = tuple(field.name for field in fields)
    indexed = [target for target in text_indices(snapshot).listed if target.path == path]
    requested = None if granularity is None else DocumentGranularity(granularity)
    if requested is None and len(indexed) > 1:
        raise InvalidInputError(
            f"FTS query for field '{column}' is ambiguous because Row and ListElement indexes "
            "coexist; specify document_granularity"
        )
    if requested is None:
        return indexed[0] if indexed else Target(path)
    target = Target(path, requested is DocumentGranularity.LIST_ELEMENT)
    if target.by_element and not any(is_list(field.arrow_type) for field in fields):
        raise InvalidInputError(
            f"FTS field path '{column}' has no List layer and cannot use ListElement document "
            "granularity"
        )
    if indexed and target not in indexed:
        names = {False: "Row", True: "ListElement"}
        raise InvalidInputError(
            f"FTS query for field '{column}' requested {names[target.by_element]} document "
            "granularity, but the existing FTS index uses a different granularity: "
            f"{names[not target.by_element]}"
        )
    return target


def _fields_of_texts(schema: Schema, column: str) -> tuple[Field, ...]:
    try:
        fields = schema.fields_on_path(column, passes_lists=True)
    except FieldNotFoundError as error:
        raise NoTextColumnError(
            "FTS field path does not exist in the dataset schema", column=column
        ) from error
    data_type = fields[-1].arrow_type
    is_json = isinstance(data_type, pa.JsonType)
    while is_list(data_type):  # nested lists cannot be indexed, but can be searched
        data_type = data_type.value_type
    if not (is_json or is_text(data_type)):
        raise InvalidInputError(
            "full-text search requires a string column", column=column, found=str(data_type)
        )
    return fields

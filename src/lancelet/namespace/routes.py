"""The HTTP routes of namespace operations, from the REST specification.

For example:

    count_table_rows   POST /v1/table/{id}/count_rows   a JSON object; returns a number
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from lancelet.values import dataclass


class Body(Enum):
    """The kind of a request body."""

    NONE = "none"
    JSON = "json"
    ARROW = "arrow"


ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
"""The media type of rows."""

MEDIA_TYPES: Final = {Body.JSON: "application/json", Body.ARROW: ARROW_STREAM}
"""The media type of each body."""


@dataclass(frozen=True, slots=True)
class Route:
    """The HTTP request of an operation.

    Attributes:
        operation: The name of the method.
        method: GET or POST.
        path: The URL path, with `{id}` for the table or namespace.
        body: The kind of the request body.
        request: The class of the request.
        response: The class of the response, None for plain text.
        query: The request fields that become query parameters.
        plain: The only field of a response that is not an object.
    """

    operation: str
    method: str
    path: str
    body: Body
    request: str
    response: str | None
    query: tuple[str, ...] = ()
    plain: str | None = None


_PAGES: Final = ("page_token", "limit")

_POSTED: Final = {
    "create_namespace": "namespace/{id}/create",
    "describe_namespace": "namespace/{id}/describe",
    "drop_namespace": "namespace/{id}/drop",
    "namespace_exists": "namespace/{id}/exists",
    "describe_table": "table/{id}/describe",
    "register_table": "table/{id}/register",
    "table_exists": "table/{id}/exists",
    "drop_table": "table/{id}/drop",
    "deregister_table": "table/{id}/deregister",
    "declare_table": "table/{id}/declare",
    "rename_table": "table/{id}/rename",
    "list_table_versions": "table/{id}/version/list",
    "create_table_version": "table/{id}/version/create",
    "describe_table_version": "table/{id}/version/describe",
    "batch_delete_table_versions": "table/{id}/version/delete",
    "count_table_rows": "table/{id}/count_rows",
    "update_table": "table/{id}/update",
    "delete_from_table": "table/{id}/delete",
    "query_table": "table/{id}/query",
    "create_table_index": "table/{id}/create_index",
    "create_table_scalar_index": "table/{id}/create_scalar_index",
    "list_table_indices": "table/{id}/index/list",
    "describe_table_index_stats": "table/{id}/index/{index_name}/stats",
    "drop_table_index": "table/{id}/index/{index_name}/drop",
    "restore_table": "table/{id}/restore",
    "update_table_schema_metadata": "table/{id}/schema_metadata/update",
    "get_table_stats": "table/{id}/stats",
    "explain_table_query_plan": "table/{id}/explain_plan",
    "analyze_table_query_plan": "table/{id}/analyze_plan",
    "alter_table_add_columns": "table/{id}/add_columns",
    "alter_table_alter_columns": "table/{id}/alter_columns",
    "alter_table_drop_columns": "table/{id}/drop_columns",
    "alter_table_backfill_columns": "table/{id}/backfill_column",
    "list_table_tags": "table/{id}/tags/list",
    "get_table_tag_version": "table/{id}/tags/version",
    "create_table_tag": "table/{id}/tags/create",
    "delete_table_tag": "table/{id}/tags/delete",
    "update_table_tag": "table/{id}/tags/update",
    "create_table_branch": "table/{id}/branches/create",
    "list_table_branches": "table/{id}/branches/list",
    "delete_table_branch": "table/{id}/branches/delete",
    "describe_transaction": "transaction/{id}/describe",
    "alter_transaction": "transaction/{id}/alter",
    "create_materialized_view": "materialized_view/{id}/create",
    "refresh_materialized_view": "materialized_view/{id}/refresh",
}
_IN_QUERY: Final = {
    "describe_table": ("with_table_uri", "load_detailed_metadata", "check_declared"),
    "list_table_versions": ("branch", *_PAGES, "descending"),
    "list_table_tags": _PAGES,
    "list_table_branches": _PAGES,
    "update_table_schema_metadata": ("branch",),
    "drop_table_index": ("branch",),
}
_PLAIN: Final = {"count_table_rows": "count", "update_table_schema_metadata": "metadata"}
_TEXTS: Final = {"explain_table_query_plan": "plan", "analyze_table_query_plan": "analysis"}
_REQUESTS: Final = {"create_table_scalar_index": "CreateTableIndexRequest"}
_RESPONSES: Final = {"create_table_scalar_index": "CreateTableScalarIndexResponse"}

BINARY: Final = frozenset({"query_table"})
"""The operations that return bytes."""


DICTS: Final = frozenset(
    {"create_table_version", "describe_table_version", "batch_delete_table_versions"}
)
"""The operations with dicts as requests and responses in Python."""


def _class_of(operation: str, suffix: str) -> str:
    return "".join(word.capitalize() for word in operation.split("_")) + suffix


def _posted(operation: str, path: str) -> Route:
    is_text = operation in _TEXTS
    return Route(
        operation,
        "POST",
        f"/v1/{path}",
        Body.JSON,
        _REQUESTS.get(operation, _class_of(operation, "Request")),
        None if is_text else _RESPONSES.get(operation, _class_of(operation, "Response")),
        _IN_QUERY.get(operation, ()),
        _TEXTS.get(operation) or _PLAIN.get(operation),
    )


_LISTED: Final = (
    Route(
        *("list_namespaces", "GET", "/v1/namespace/{id}/list", Body.NONE),
        *("ListNamespacesRequest", "ListNamespacesResponse", _PAGES),
    ),
    Route(
        *("list_tables", "GET", "/v1/namespace/{id}/table/list", Body.NONE),
        *("ListTablesRequest", "ListTablesResponse", (*_PAGES, "include_declared")),
    ),
    Route(
        *("list_all_tables", "GET", "/v1/table", Body.NONE),
        *("ListTablesRequest", "ListTablesResponse", (*_PAGES, "include_declared")),
    ),
)
_WRITTEN: Final = tuple(
    Route(
        operation,
        "POST",
        f"/v1/table/{{id}}/{path}",
        Body.ARROW,
        f"{name}Request",
        f"{name}Response",
    )
    for operation, path, name in (
        ("create_table", "create", "CreateTable"),
        ("insert_into_table", "insert", "InsertIntoTable"),
        ("merge_insert_into_table", "merge_insert", "MergeInsertIntoTable"),
    )
)

ROUTES: Final = {
    route.operation: route
    for route in (*_LISTED, *_WRITTEN, *(_posted(*each) for each in _POSTED.items()))
}
"""All operations, by name."""

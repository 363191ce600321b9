"""A client of a namespace server: requests and responses are JSON or Arrow.

    ns.count_table_rows(id=["sales", "q"])
    POST /v1/table/sales$q/count_rows?delimiter=$        {"predicate": ...}
    200 42

`routes` maps operations to requests; the server in `adapter` uses it as well.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import lance_namespace
from lance_namespace import LanceNamespace, ServiceUnavailableError
from lance_namespace.errors import from_error_code

from lancelet.errors import InvalidInputError, redacted
from lancelet.namespace.context import (
    DynamicContextProvider,
    headers_of,
    provider_of,
    without_provider,
)
from lancelet.namespace.routes import BINARY, DICTS, MEDIA_TYPES, ROUTES, Body, Route

_HEADER: Final = "header."
_WAIT_SECONDS: Final = 300


class RestNamespace(LanceNamespace):  # type: ignore[misc]  # its stubs are not read
    """A namespace on a server."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a server.

        Args:
            context_provider: Called before each request to add headers.
            **properties: `uri`, the server; `delimiter`, which joins the parts of an id, `$` by
                default; `header.X` for each header `X`; and `ops_metrics_enabled`.
        """
        given = {name: str(value) for name, value in properties.items()}
        self._provider = context_provider or provider_of(given)
        settings = without_provider(given)
        if "uri" not in settings:
            raise InvalidInputError("a REST namespace requires the property `uri`")
        if not settings["uri"].startswith(("http://", "https://")):
            raise InvalidInputError("the URI of a namespace must use http", uri=settings["uri"])
        self._uri = settings["uri"].rstrip("/")
        self._delimiter = settings.get("delimiter", "$")
        self._headers = {
            name.removeprefix(_HEADER): value
            for name, value in settings.items()
            if name.startswith(_HEADER)
        }
        self._counts: Counter[str] | None = (
            Counter() if settings.get("ops_metrics_enabled") == "true" else None
        )

    def namespace_id(self) -> str:
        """Return a text that identifies the namespace."""
        return (
            f'RestNamespace {{ endpoint: "{redacted(self._uri)}", delimiter: "{self._delimiter}" }}'
        )

    def __repr__(self) -> str:
        return f"RestNamespace({self.namespace_id()})"

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Return the number of calls per operation, if enabled."""
        return dict(self._counts or {})

    def reset_ops_metrics(self) -> None:
        """Reset the counts."""
        if self._counts is not None:
            self._counts.clear()

    def create_empty_table(self, request: Any) -> Any:
        """Reserve a name for a table that is written later. Deprecated: use `declare_table`."""
        declaration = lance_namespace.DeclareTableRequest(id=request.id)
        return self._call(ROUTES["declare_table"], declaration, None)

    def _call(self, route: Route, request: Any, data: bytes | None) -> Any:
        """Send a request, and parse the response as the class of the operation."""
        fields = (
            {name: value for name, value in request.items() if value is not None}
            if isinstance(request, Mapping)
            else request.model_dump(mode="json", exclude_none=True, by_alias=True)
        )
        sent = {
            name.removeprefix(_HEADER): str(value)
            for name, value in (fields.get("context") or {}).items()
            if name.startswith(_HEADER)
        }
        object_id = self._delimiter.join(fields.pop("id", None) or ()) or self._delimiter
        query: dict[str, Any] = {"delimiter": self._delimiter}
        in_query = route.query if route.body is not Body.ARROW else tuple(fields)
        for name in in_query:
            if name in fields:
                query[name] = _as_text(fields.pop(name))
        names = {"id": object_id, "index_name": fields.get("index_name") or ""}
        path = route.path
        for name, value in names.items():
            path = path.replace(f"{{{name}}}", urllib.parse.quote(value, safe=""))
        body = data if route.body is Body.ARROW else None
        if route.body is Body.JSON:
            body = json.dumps({**fields, "id": object_id.split(self._delimiter)}).encode()
        path = f"{path}?{urllib.parse.urlencode(query)}"
        answer, received = self._send(route, path, body, object_id, sent)
        return answer if route.operation in DICTS else _answer(route, answer, received)

    def _send(
        self,
        route: Route,
        path: str,
        body: bytes | None,
        object_id: str,
        own_headers: Mapping[str, str],
    ) -> tuple[Any, dict[str, str]]:
        """Send a request; return the response body, and its headers as context."""
        if self._counts is not None:
            self._counts[route.operation] += 1
        headers = {
            "Content-Type": MEDIA_TYPES.get(route.body, "application/json"),
            **self._headers,
            **headers_of(self._provider, route.operation, object_id),
            **own_headers,
        }
        http_request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._uri + path, data=body, headers=headers, method=route.method
        )
        try:
            with urllib.request.urlopen(http_request, timeout=_WAIT_SECONDS) as reply:  # noqa: S310 - as above
                received: bytes = reply.read()
                context = {
                    f"{_HEADER}{name.lower()}": value for name, value in reply.headers.items()
                }
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            raise ServiceUnavailableError(
                redacted(f"cannot connect to {self._uri}: {error}")
            ) from error
        if route.operation in BINARY:
            return received, context
        return json.loads(received) if received.strip() else {}, context


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _answer(route: Route, found: Any, context: dict[str, str]) -> Any:
    if route.operation in BINARY:
        return lance_namespace.QueryTableResponse(data=found)
    if route.plain is not None:
        if isinstance(found, Mapping) and route.plain in found:
            found = found[route.plain]
        if route.response is None:
            return found
        found = {route.plain: found}
    kind = getattr(lance_namespace, route.response or "")
    if "context" in kind.model_fields:
        found = {**found, "context": {**(found.get("context") or {}), **context}}
    return kind.from_dict(found)


def _refusal(error: urllib.error.HTTPError) -> Exception:
    text = error.read().decode(errors="replace")
    try:
        content = json.loads(text)
    except ValueError:
        content = {}
    message = content.get("detail") or content.get("error") or text or str(error)
    found: Exception = from_error_code(int(content.get("code", 18)), str(message))
    return found


def _method(route: Route) -> Any:
    """Create the method of an operation."""

    def call(self: RestNamespace, request: Any, request_data: bytes | None = None) -> Any:
        return self._call(route, request, request_data)

    def call_without_data(self: RestNamespace, request: Any) -> Any:
        return self._call(route, request, None)

    method = call if route.body is Body.ARROW else call_without_data
    method.__name__ = route.operation
    method.__qualname__ = f"{RestNamespace.__name__}.{route.operation}"
    method.__doc__ = f"Send the request {route.operation.replace('_', ' ')}."
    return method


for _route in ROUTES.values():
    setattr(RestNamespace, _route.operation, _method(_route))

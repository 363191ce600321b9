"""A namespace behind a server, whose requests and answers are JSON and Arrow.

    ns.count_table_rows(id=["sales", "q"])
    POST /v1/table/sales$q/count_rows?delimiter=$        {"predicate": ...}
    200 42

Which operation goes where is in `routes`, which the server of `adapter` reads too.
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
    """Names for tables that a server keeps."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Talk to a server.

        Args:
            context_provider: Asked before each request for headers that go along.
            **properties: `uri`, the server; `delimiter`, which joins the parts of an id, `$` by
                default; `header.X` for each header `X`; and `ops_metrics_enabled`.
        """
        given = {name: str(value) for name, value in properties.items()}
        self._provider = context_provider or provider_of(given)
        settings = without_provider(given)
        if "uri" not in settings:
            raise InvalidInputError("a REST namespace needs the property `uri`")
        if not settings["uri"].startswith(("http://", "https://")):
            raise InvalidInputError("a server is reached by http", uri=settings["uri"])
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
        """Return text that identifies the namespace."""
        return (
            f'RestNamespace {{ endpoint: "{redacted(self._uri)}", delimiter: "{self._delimiter}" }}'
        )

    def __repr__(self) -> str:
        return f"RestNamespace({self.namespace_id()})"

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Return how often each operation was asked for, if they are counted."""
        return dict(self._counts or {})

    def reset_ops_metrics(self) -> None:
        """Begin to count anew."""
        if self._counts is not None:
            self._counts.clear()

    def create_empty_table(self, request: Any) -> Any:
        """Take a name for a table that is written later; an old name for `declare_table`."""
        asked = lance_namespace.DeclareTableRequest(id=request.id)
        return self._ask(ROUTES["declare_table"], asked, None)

    def _ask(self, route: Route, request: Any, data: bytes | None) -> Any:
        """Send a request, and return the answer as the class that the operation has for it."""
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
        """Send a request; return the answer, and the headers that came with it as context."""
        if self._counts is not None:
            self._counts[route.operation] += 1
        headers = {
            "Content-Type": MEDIA_TYPES.get(route.body, "application/json"),
            **self._headers,
            **headers_of(self._provider, route.operation, object_id),
            **own_headers,
        }
        asked = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._uri + path, data=body, headers=headers, method=route.method
        )
        try:
            with urllib.request.urlopen(asked, timeout=_WAIT_SECONDS) as reply:  # noqa: S310 - as above
                received: bytes = reply.read()
                context = {
                    f"{_HEADER}{name.lower()}": value for name, value in reply.headers.items()
                }
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            raise ServiceUnavailableError(
                redacted(f"{self._uri} does not answer: {error}")
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
        told = json.loads(text)
    except ValueError:
        told = {}
    message = told.get("detail") or told.get("error") or text or str(error)
    found: Exception = from_error_code(int(told.get("code", 18)), str(message))
    return found


def _method(route: Route) -> Any:
    """Return the method of an operation."""

    def ask(self: RestNamespace, request: Any, request_data: bytes | None = None) -> Any:
        return self._ask(route, request, request_data)

    def ask_without_data(self: RestNamespace, request: Any) -> Any:
        return self._ask(route, request, None)

    method = ask if route.body is Body.ARROW else ask_without_data
    method.__name__ = route.operation
    method.__qualname__ = f"{RestNamespace.__name__}.{route.operation}"
    method.__doc__ = f"Ask the server to {route.operation.replace('_', ' ')}."
    return method


for _route in ROUTES.values():
    setattr(RestNamespace, _route.operation, _method(_route))

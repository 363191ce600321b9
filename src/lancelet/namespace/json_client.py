"""A client of JSON services, for catalogs with a REST API.

client.send("GET", "schemas/lake.sales")             {"name": "sales", ...}
client.send("POST", "schemas", {"name": "sales"})    JsonError(409, "schema exists")
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lance_namespace import PermissionDeniedError, ServiceUnavailableError

from lancelet.errors import InvalidInputError, redacted

_DENIED: Final = {401, 403}
_UNAVAILABLE: Final = 500
_SECONDS_MAX: Final = 1e6


class JsonError(Exception):
    """A service refused a request."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the HTTP status and the message of the service."""
        super().__init__(f"{message} (HTTP status {status})")
        self.status = status


class JsonClient:
    """Sends requests to a service."""

    def __init__(
        self, endpoint: str, *, path: str = "", token: str | None = None, seconds: float = 60
    ) -> None:
        """Use a service at an endpoint; `token` is sent as a bearer token."""
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidInputError(
                "the endpoint of a catalog must start with http:// or https://",
                endpoint=redacted(endpoint),
            )
        self._base = f"{endpoint.rstrip('/')}/{path.strip('/')}".rstrip("/")
        self._token = token
        self._seconds = seconds

    @property
    def base(self) -> str:
        """The URL of the service, without secrets."""
        return redacted(self._base)

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the object that the service answers.

        Raises:
            JsonError: The service refused the request.
            PermissionDeniedError: The token is missing or invalid.
            ServiceUnavailableError: The service failed or cannot be reached.
        """
        url = f"{self._base}/{path}"
        if query:
            url += f"?{urllib.parse.urlencode(query)}"
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            url,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as reply:  # noqa: S310 - as above
                received = reply.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            raise ServiceUnavailableError(
                redacted(f"cannot connect to {self.base}: {error}")
            ) from error
        try:
            found = json.loads(received) if received.strip() else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ServiceUnavailableError(f"{self.base} did not answer with a JSON object")
        return found

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        message = redacted(_message_of(error.read().decode(errors="replace")) or str(error))
        found: Exception = JsonError(error.code, message)
        if error.code in _DENIED:
            found = PermissionDeniedError(f"{self.base} denies the request: {message}")
        elif error.code >= _UNAVAILABLE:
            found = ServiceUnavailableError(f"{self.base} failed: {message}")
        return found


def settings_of(properties: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return properties without the prefix that other implementations require.

    >>> settings_of({"unity.endpoint": "http://x", "root": "r"}, "unity")
    {'endpoint': 'http://x', 'root': 'r'}
    """
    return {name.removeprefix(f"{kind}."): str(value) for name, value in properties.items()}


def client_of(settings: Mapping[str, str], kind: str, *, path: str = "") -> JsonClient:
    """Return the client for the properties `endpoint`, `auth_token` and `read_timeout`."""
    if "endpoint" not in settings:
        raise InvalidInputError(f"a namespace of the kind {kind} requires the property `endpoint`")
    return JsonClient(
        settings["endpoint"],
        path=path,
        token=settings.get("auth_token"),
        seconds=seconds_of(settings),
    )


def seconds_of(settings: Mapping[str, str]) -> float:
    """Return the property `read_timeout`, in seconds."""
    millis = settings.get("read_timeout_millis")
    given = settings.get("read_timeout", "60") if millis is None else millis
    try:
        seconds = float(given) / (1 if millis is None else 1000)
    except ValueError:
        seconds = 0
    if not 0 < seconds < _SECONDS_MAX:
        raise InvalidInputError("the read timeout must be a positive number", found=given)
    return seconds


def pages_of(
    send: Callable[[dict[str, str]], dict[str, Any]],
    query: Mapping[str, str],
    *,
    parameter: str,
    following: str,
) -> Iterator[dict[str, Any]]:
    """Yield the pages of a listing; `following` is the field with the token of the next page.

    >>> pages = {"": {"names": ["a"], "next": "t"}, "t": {"names": ["b"]}}
    >>> send = lambda query: pages[query.get("page", "")]
    >>> [page["names"] for page in pages_of(send, {}, parameter="page", following="next")]
    [['a'], ['b']]
    """
    page = send(dict(query))
    yield page
    while token := page.get(following):
        page = send({**query, parameter: token})
        yield page


def quoted(name: str) -> str:
    """Return a name as part of a path."""
    return urllib.parse.quote(name, safe="")


def _message_of(text: str) -> str:
    """Return the message in the answer of a service."""
    try:
        content = json.loads(text)
    except ValueError:
        return text
    if not isinstance(content, dict):
        return text
    inner = content.get("error")
    if isinstance(inner, dict):
        content = inner
    return str(content.get("message") or content.get("error_code") or text)

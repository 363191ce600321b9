"""A client of JSON services, for catalogs with a REST API.

client.send("GET", "schemas/lake.sales")             {"name": "sales", ...}
client.send("POST", "schemas", {"name": "sales"})    JsonError(409, "schema exists")

Only reads are repeated if a service is busy or an answer is lost. The lost answer to another
request is an `OutcomeUnknownError`.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from typing import Any, Final

from lance_namespace import PermissionDeniedError, ServiceUnavailableError, ThrottlingError

from lancelet import surroundings
from lancelet.errors import InvalidInputError, redacted
from lancelet.namespace.context import REQUEST_HEADERS
from lancelet.namespace.credentials import (
    Credentials,
    OAuthServer,
    credentials_of,
    with_environment,
)
from lancelet.namespace.operations import OutcomeUnknownError
from lancelet.values import dataclass

_READ: Final = "GET"
_DENIED: Final = {401, 403}
_UNAUTHENTICATED: Final = 401
_BUSY: Final = 429
_FAILED: Final = 500
_REPEATED: Final = {429, 502, 503, 504}
_RETRIES_MAX: Final = 4
_FIRST_WAIT_SECONDS: Final = 0.2
_WAIT_SECONDS_MAX: Final = 60.0
_SECONDS_MAX: Final = 1e6
_NOT_SENT: Final = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)


class JsonError(Exception):
    """A service refused a request."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the HTTP status and the message of the service."""
        super().__init__(f"{message} (HTTP status {status})")
        self.status = status


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Message
    content: bytes


class JsonClient:
    """Sends requests to a service."""

    def __init__(
        self,
        endpoint: str,
        *,
        path: str = "",
        credentials: Credentials | None = None,
        seconds: float = 60,
    ) -> None:
        """Use a service at an endpoint."""
        self._base = f"{_checked(endpoint).rstrip('/')}/{path.strip('/')}".rstrip("/")
        self._credentials = credentials or Credentials()
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
            PermissionDeniedError: The credentials are missing or invalid.
            OutcomeUnknownError: The request is not a read, and its answer was lost.
            ThrottlingError: The service is busy.
            ServiceUnavailableError: The service failed or cannot be reached.
        """
        url = f"{self._base}/{path}"
        if query:
            url += f"?{urllib.parse.urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        retries = _RETRIES_MAX if method == _READ else 0
        for retry in range(retries + 1):
            try:
                answer = self._authorized(method, url, data)
            except OutcomeUnknownError:
                if retry == retries:
                    raise
                wait: float | None = None
            else:
                wait = _wait_of(answer)
                is_repeated = answer.status in _REPEATED and (wait or 0) <= _WAIT_SECONDS_MAX
                if retry == retries or not is_repeated:
                    return self._object_of(answer, method)
            surroundings.sleep(_FIRST_WAIT_SECONDS * 2**retry if wait is None else wait)
        raise AssertionError

    def _authorized(self, method: str, url: str, data: bytes | None) -> _Answer:
        """Send a request with the current token, and again if the service wants another one."""
        token = self._credentials.token()
        answer = self._sent(method, url, data, token)
        if answer.status == _UNAUTHENTICATED and self._credentials.replaces(token):
            answer = self._sent(method, url, data, self._credentials.token())
        return answer

    def _sent(self, method: str, url: str, data: bytes | None, token: str | None) -> _Answer:
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            return _exchange(method, url, data, {**headers, **REQUEST_HEADERS.get()}, self._seconds)
        except (ServiceUnavailableError, OutcomeUnknownError) as error:
            raise type(error)(f"{self._shown(str(error))}") from None

    def _object_of(self, answer: _Answer, method: str) -> dict[str, Any]:
        """Return the object in an answer, or raise the error that it reports."""
        if answer.status // 100 == 2:
            found = _json_of(answer.content)
            if isinstance(found, dict):
                return found
            message = f"{self.base} did not answer with a JSON object"
            raise (
                ServiceUnavailableError(message)
                if method == _READ
                else OutcomeUnknownError(message)
            )
        text = answer.content.decode(errors="replace")
        message = self._shown(_message_of(text) or f"HTTP status {answer.status}")
        if answer.status in _DENIED:
            raise PermissionDeniedError(
                f"{self.base} denies the request: {message}; check the credentials and the "
                "permissions of their user"
            )
        if answer.status == _BUSY:
            wait = answer.headers.get("Retry-After")
            after = f"; retry after {wait}" if wait else ""
            raise ThrottlingError(f"{self.base} is busy: {message}{after}")
        if answer.status >= _FAILED:
            kind = ServiceUnavailableError if method == _READ else OutcomeUnknownError
            raise kind(f"{self.base} failed: {message}")
        raise JsonError(answer.status, message)

    def _shown(self, text: str) -> str:
        return redacted(self._credentials.hidden(text))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: following them would send the token to another service."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request."""


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def _exchange(
    method: str, url: str, data: bytes | None, headers: Mapping[str, str], seconds: float
) -> _Answer:
    """Send a request once, and return the answer.

    Raises:
        ServiceUnavailableError: The service cannot be reached, so it has not received the request.
        OutcomeUnknownError: The answer was lost.
    """
    request = urllib.request.Request(url, data, dict(headers), method=method)  # noqa: S310 - the scheme was checked
    try:
        with _OPENER.open(request, timeout=seconds) as reply:
            return _Answer(reply.status, reply.headers, reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return _Answer(error.code, error.headers, _content_of(error))
    except (OSError, http.client.HTTPException) as error:
        target = redacted(url.partition("?")[0])
        reason = getattr(error, "reason", error)
        if isinstance(reason, _NOT_SENT):
            raise ServiceUnavailableError(
                f"cannot connect to {target}: {reason}; check the address and the network"
            ) from error
        raise OutcomeUnknownError(f"the answer of {target} was lost: {reason!r}") from error


def _content_of(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read()
    except (OSError, http.client.HTTPException):  # the status is known
        return b""


def _token_exchange(seconds: float) -> Callable[[str, bytes, Mapping[str, str]], dict[str, Any]]:
    """Return the function that asks a token service for a token."""

    def exchange(url: str, form: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        try:
            answer = _exchange("POST", url, form, headers, seconds)
        except OutcomeUnknownError as error:
            raise ServiceUnavailableError(f"no token: {error}") from error
        found = _json_of(answer.content)
        if answer.status // 100 != 2 or not isinstance(found, dict):
            # The content may repeat the secret.
            kind = ServiceUnavailableError if answer.status >= _FAILED else PermissionDeniedError
            raise kind(
                f"{redacted(url)} issued no token (HTTP status {answer.status}); check the id and "
                "the secret of the client"
            )
        return found

    return exchange


def _wait_of(answer: _Answer) -> float | None:
    """Return the seconds of Retry-After, which is a number or a date."""
    text = (answer.headers.get("Retry-After") or "").strip()
    if text.isdecimal():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return max(0.0, moment - surroundings.time_ns() / 1e9)


def _checked(endpoint: str) -> str:
    if not endpoint.startswith(("http://", "https://")):
        raise InvalidInputError(
            "the endpoint of a catalog must start with http:// or https://",
            endpoint=redacted(endpoint),
        )
    if "@" in urllib.parse.urlsplit(endpoint).netloc:
        raise InvalidInputError(
            "the endpoint of a catalog must have no user and password; set the property "
            "`auth_token`, or `client_id` and `client_secret`",
            endpoint=redacted(endpoint),
        )
    return endpoint


def settings_of(properties: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return properties without the prefix that other implementations require.

    >>> settings_of({"unity.endpoint": "http://x", "root": "r"}, "unity")
    {'endpoint': 'http://x', 'root': 'r'}
    """
    return {name.removeprefix(f"{kind}."): str(value) for name, value in properties.items()}


def client_of(
    properties: Mapping[str, str],
    kind: str,
    server: OAuthServer,
    variables: Mapping[str, str],
    *,
    path: str = "",
) -> tuple[JsonClient, dict[str, str]]:
    """Return the client for the properties of a namespace, and the properties.

    Args:
        properties: `endpoint`, `read_timeout`, and the properties of `credentials_of`.
        kind: The kind of the namespace, which may be the prefix of properties.
        server: How the platform issues tokens.
        variables: The environment variables of the platform, by property.
        path: The path of the API, unless the property `api_path` is set.
    """
    settings = with_environment(settings_of(properties, kind), variables)
    if "endpoint" not in settings:
        raise InvalidInputError(f"a namespace of the kind {kind} requires the property `endpoint`")
    endpoint, seconds = _checked(settings["endpoint"]), seconds_of(settings)
    credentials = credentials_of(settings, endpoint, server, _token_exchange(seconds))
    path = settings.get("api_path", path)
    return JsonClient(endpoint, path=path, credentials=credentials, seconds=seconds), settings


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


def _json_of(content: bytes) -> Any:
    """Parse the content of an answer; empty content is an empty object."""
    try:
        return json.loads(content) if content.strip() else {}
    except ValueError:
        return None


def _message_of(text: str) -> str:
    """Return the message in the answer of a service."""
    content = _json_of(text.encode())
    if not isinstance(content, dict):
        return text
    inner = content.get("error")
    if isinstance(inner, dict):
        content = inner
    return str(content.get("message") or content.get("error_code") or text)

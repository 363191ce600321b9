"""Credentials of catalogs with a REST API: a token, or those of an OAuth 2 client.

    auth_token="..."                            sent as it is
    credential="id:secret"                      exchanged for tokens, which expire
    DATABRICKS_TOKEN=..., PYICEBERG_...=...     the variables of each platform

A token of a client is replaced before it expires, and once if the service refuses it. Secrets are
never displayed: `Credentials.hidden` removes them from messages of services, which may repeat them.
"""

from __future__ import annotations

import base64
import os
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from lance_namespace import PermissionDeniedError

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.io.uri import parse_uri
from lancelet.values import dataclass

_MARGIN_SECONDS: Final = 60.0
_MARGIN_SHARE: Final = 0.2
_LIFETIME_SECONDS: Final = 3600.0
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SECRETS: Final = ("auth_token", "credential", "client_id", "client_secret")

Exchange: TypeAlias = Callable[[str, bytes, Mapping[str, str]], dict[str, Any]]
"""Sends a form with headers to a URL, and returns the JSON object of the answer."""


@dataclass(frozen=True, slots=True)
class OAuthServer:
    """How a platform issues tokens: the path of its service, the scope, and the form."""

    path: str
    scope: str
    has_client_in_header: bool = False


class Credentials:
    """A token that does not change; None sends none."""

    def __init__(self, token: str | None = None) -> None:
        """Use a token."""
        self._token = token

    def token(self) -> str | None:
        """Return the current token."""
        return self._token

    def replaces(self, refused: str | None) -> bool:
        """Return whether there is another token after the service refused one."""
        del refused
        return False

    def hidden(self, text: str) -> str:
        """Return a text without the secrets."""
        return _without([self._token], text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ClientCredentials(Credentials):
    """The id and secret of an OAuth 2 client, which are exchanged for tokens."""

    def __init__(
        self, client_id: str, secret: str, url: str, server: OAuthServer, exchange: Exchange
    ) -> None:
        """Use a client; `exchange` sends requests to the token service."""
        super().__init__()
        self._client_id, self._secret = client_id, secret
        self._url, self._server, self._exchange = url, server, exchange
        self._renewal = 0.0
        self._lock = threading.Lock()

    def token(self) -> str | None:
        """Return the current token; replace it if it expires soon."""
        with self._lock:
            if self._token is None or surroundings.monotonic() >= self._renewal:
                self._renew()
            return self._token

    def replaces(self, refused: str | None) -> bool:
        """Replace the token if it was refused."""
        with self._lock:
            if self._token == refused:
                self._renew()
            return True

    def hidden(self, text: str) -> str:
        """Return a text without the secrets."""
        pair = f"{self._client_id}:{self._secret}"
        encoded = base64.b64encode(pair.encode()).decode()
        return _without([self._token, self._secret, encoded], text)

    def _renew(self) -> None:
        form = {"grant_type": "client_credentials", "scope": self._server.scope}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self._server.has_client_in_header:
            pair = f"{self._client_id}:{self._secret}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            form |= {"client_id": self._client_id, "client_secret": self._secret}
        started = surroundings.monotonic()
        found = self._exchange(self._url, urllib.parse.urlencode(form).encode(), headers)
        token = found.get("access_token")
        if not isinstance(token, str) or not token:
            raise PermissionDeniedError(f"{self._url} issued no token")
        given = found.get("expires_in")
        seconds = float(given) if isinstance(given, int | float) else _LIFETIME_SECONDS
        self._token = token
        self._renewal = started + seconds - min(_MARGIN_SECONDS, seconds * _MARGIN_SHARE)


def credentials_of(
    settings: Mapping[str, str], endpoint: str, server: OAuthServer, exchange: Exchange
) -> Credentials:
    """Return the credentials in properties: `auth_token`, or the id and secret of a client."""
    if "auth_token" in settings:
        return Credentials(settings["auth_token"])
    client_id, secret = settings.get("client_id"), settings.get("client_secret")
    if "credential" in settings:
        client_id, _, secret = settings["credential"].partition(":")
    if secret is None:
        return Credentials()
    url = settings.get("oauth2_server_uri") or f"{endpoint.rstrip('/')}/{server.path}"
    if not url.startswith(("http://", "https://")):
        raise InvalidInputError("the property `oauth2_server_uri` must be a URL", found=url)
    server = replace(server, scope=settings.get("scope", server.scope))
    return ClientCredentials(client_id or "", secret, url, server, exchange)


def with_environment(settings: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return properties with those that environment variables set.

    Credentials of the environment are used if no others are given. They are sent only to the
    endpoint of the environment, if it names one, and only encrypted or to this machine.

    >>> os.environ["EXAMPLE_TOKEN"] = "t"
    >>> with_environment({"endpoint": "https://x"}, {"auth_token": "EXAMPLE_TOKEN"})["auth_token"]
    't'
    """
    found = {name: os.environ[own] for name, own in variables.items() if os.environ.get(own)}
    merged = {**found, **settings}
    endpoint = str(merged.get("endpoint", ""))
    named = found.get("endpoint", "" if "endpoint" in variables else endpoint)
    is_theirs = bool(named) and parse_uri(named) == parse_uri(endpoint)
    host = urllib.parse.urlsplit(endpoint).hostname
    is_private = endpoint.startswith("https://") or host in _LOOPBACK
    has_own = any(name in settings for name in _SECRETS)
    if has_own or not (is_theirs and is_private):
        for name in _SECRETS:
            if name not in settings:
                merged.pop(name, None)
    return merged


def _without(secrets: list[str | None], text: str) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text

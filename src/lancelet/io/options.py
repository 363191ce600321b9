"""Storage options, by the names that pylance takes, sorted by who understands them.

    allow_http, timeout, proxy_url ...          the HTTP client
    client_max_retries, client_retry_timeout    our retries
    expires_at_millis                           when the credentials among the options expire
    aws_..., google_..., azure_...              the store; so are short forms such as `region`
    durability                                  files: whether to flush what is written
    fsspec                                      a file system of fsspec, which has its own
    anything else                               nobody: ignored, as the reference does

Names may be in any case. What the environment says (`AWS_ENDPOINT`, ...) is read by the store
itself, and options come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from lancelet.errors import InvalidInputError
from lancelet.io.retry import RetryPolicy
from lancelet.values import dataclass

Durability: TypeAlias = Literal["flushed", "written"]
"""Of files on a disk: whether what a commit wrote survives a loss of power when it returns."""

EXPIRES_AT: Final = "expires_at_millis"
"""The option that says when the credentials beside it expire, in milliseconds since 1970."""

FSSPEC: Final = "fsspec"
"""The option that asks for a file system of fsspec, or is one."""

OUR_OPTIONS: Final = frozenset({EXPIRES_AT, FSSPEC, "durability"})
"""Options that are for us, and not for a store."""

_CLIENT_KEYS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)

_PREFIXES: Final = ("aws_", "azure_storage_", "azure_", "google_")


class OptionTypeError(InvalidInputError, TypeError):
    """A storage option is no text."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a client is made from."""

    store: Mapping[str, str]
    http: Mapping[str, str]
    retry: RetryPolicy


def check_endpoints(options: Mapping[str, str]) -> None:
    """Refuse endpoints that are no URLs or have credentials; the error does not quote them."""
    for name, value in options.items():
        if _is_endpoint(name.lower()):
            _check_endpoint(name, value)


def _is_endpoint(key: str) -> bool:
    short = _without_prefix(key)
    return ("endpoint" in short or short == "base_url") and not short.startswith("use_")


def _check_endpoint(name: str, value: str) -> None:
    try:
        parts = urlsplit(value)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname)
        is_url = is_url and (parts.port is None or parts.port >= 0)
    except ValueError:
        is_url = False
    if not is_url:
        raise InvalidInputError("an endpoint is a URL such as https://host:9000", option=name)
    if "@" in parts.netloc:
        raise InvalidInputError(
            "an endpoint has no user name and password; pass credentials as storage options",
            option=name,
        )


def sort_options(options: Mapping[str, str]) -> ClientOptions:
    """Sort storage options by who understands them.

    >>> sorted_options = sort_options({"AWS_Region": "eu-1", "aws_allow_http": "true"})
    >>> sorted_options.store, sorted_options.http
    ({'aws_region': 'eu-1'}, {'allow_http': 'true'})
    """
    store: dict[str, str] = {}
    http: dict[str, str] = {}
    for name, value in options.items():
        if not isinstance(value, str):
            raise OptionTypeError("storage options are text", name=name, found=type(value).__name__)
        key = name.lower()
        if (client_key := _without_prefix(key)) in _CLIENT_KEYS:
            http[client_key] = value
        elif key == "azure_storage_use_http":
            http["allow_http"] = value
        else:
            store[key] = value
    return ClientOptions(store, http, _take_retry_policy(store))


def option_of(options: Mapping[str, str], *names: str) -> str | None:
    """Return the first of several names that is among the options, in any case.

    >>> option_of({"AWS_REGION": "eu-1"}, "region", "aws_region")
    'eu-1'
    """
    lower = {name.lower(): value for name, value in options.items()}
    return next((lower[name] for name in names if name in lower), None)


def with_durability(
    options: Mapping[str, str] | None, durability: Durability | None
) -> Mapping[str, str] | None:
    """Return storage options with what was asked for beside them.

    >>> with_durability({"timeout": "10s"}, "written")
    {'timeout': '10s', 'durability': 'written'}
    """
    if durability is None:
        return options
    if durability not in get_args(Durability):
        raise InvalidInputError("durability is flushed or written", found=durability)
    given = option_of(options or {}, "durability") or durability
    if given.lower() != durability:
        raise InvalidInputError(
            "durability is given twice; leave it out of the storage options",
            argument=durability,
            storage_option=given,
        )
    return {**(options or {}), "durability": durability}


def _without_prefix(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def _take_retry_policy(store: dict[str, str]) -> RetryPolicy:
    default = RetryPolicy()
    return RetryPolicy(
        retries_max=_take_int(store, "client_max_retries", default.retries_max),
        timeout_seconds=_take_int(store, "client_retry_timeout", int(default.timeout_seconds)),
    )


def _take_int(store: dict[str, str], name: str, default: int) -> int:
    text = store.pop(name, None)
    if text is None:
        return default
    if not text.isdigit():
        raise InvalidInputError("a storage option must be an integer", name=name, found=text)
    return int(text)

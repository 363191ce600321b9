"""Storage options, by the names of pylance, grouped by their consumer.

    allow_http, timeout, proxy_url ...          the HTTP client
    client_max_retries, client_retry_timeout    the retry policy
    expires_at_millis                           the expiration time of credentials in the options
    aws_..., google_..., azure_...              the store, also short forms such as `region`
    durability                                  local files: whether writes are flushed
    fsspec                                      an fsspec file system
    local_cache, local_cache_bytes              a cache on a local disk
    all others                                  ignored, as in the reference

Names are case-insensitive. Stores read environment variables (`AWS_ENDPOINT`, ...) themselves;
options take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from lancelet.errors import InvalidInputError
from lancelet.io.retry import RetryPolicy
from lancelet.values import dataclass

Durability: TypeAlias = Literal["flushed", "written"]
"""For local files: whether the files of a commit survive a power loss once it returns."""

EXPIRES_AT: Final = "expires_at_millis"
"""Option with the expiration time of the credentials in the options, in milliseconds since 1970."""

FSSPEC: Final = "fsspec"
"""Option that selects fsspec, or an fsspec file system object."""

LOCAL_CACHE: Final = "local_cache"
"""Option with a local folder that caches the data of tables."""

LOCAL_CACHE_BYTES: Final = "local_cache_bytes"
"""Option with the maximum size of `local_cache` in bytes."""

OUR_OPTIONS: Final = frozenset({EXPIRES_AT, FSSPEC, LOCAL_CACHE, LOCAL_CACHE_BYTES, "durability"})
"""Options of this library that are not passed to a store."""

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
    """A storage option is not a string."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The configuration of a client."""

    store: Mapping[str, str]
    http: Mapping[str, str]
    retry: RetryPolicy


def check_endpoints(options: Mapping[str, str]) -> None:
    """Raise for endpoints that are not URLs or contain credentials; errors do not quote them."""
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
        raise InvalidInputError("an endpoint must be a URL such as https://host:9000", option=name)
    if "@" in parts.netloc:
        raise InvalidInputError(
            (
                "an endpoint must not contain a user name or password; pass credentials as storage "
                "options"
            ),
            option=name,
        )


def sort_options(options: Mapping[str, str]) -> ClientOptions:
    """Group storage options by their consumer.

    >>> sorted_options = sort_options({"AWS_Region": "eu-1", "aws_allow_http": "true"})
    >>> sorted_options.store, sorted_options.http
    ({'aws_region': 'eu-1'}, {'allow_http': 'true'})
    """
    store: dict[str, str] = {}
    http: dict[str, str] = {}
    for name, value in options.items():
        if not isinstance(value, str):
            raise OptionTypeError(
                "storage options must be strings", name=name, found=type(value).__name__
            )
        key = name.lower()
        if (client_key := _without_prefix(key)) in _CLIENT_KEYS:
            http[client_key] = value
        elif key == "azure_storage_use_http":
            http["allow_http"] = value
        else:
            store[key] = value
    return ClientOptions(store, http, _take_retry_policy(store))


def get_option(options: Mapping[str, str], *names: str) -> str | None:
    """Return the value of the first given name among the options, ignoring case.

    >>> get_option({"AWS_REGION": "eu-1"}, "region", "aws_region")
    'eu-1'
    """
    lower = {name.lower(): value for name, value in options.items()}
    return next((lower[name] for name in names if name in lower), None)


def with_durability(
    options: Mapping[str, str] | None, durability: Durability | None
) -> Mapping[str, str] | None:
    """Add the `durability` argument to storage options.

    >>> with_durability({"timeout": "10s"}, "written")
    {'timeout': '10s', 'durability': 'written'}
    """
    if durability is None:
        return options
    if durability not in get_args(Durability):
        raise InvalidInputError("durability must be flushed or written", found=durability)
    requested = get_option(options or {}, "durability") or durability
    if requested.lower() != durability:
        raise InvalidInputError(
            "durability is given twice; remove it from the storage options",
            argument=durability,
            storage_option=requested,
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

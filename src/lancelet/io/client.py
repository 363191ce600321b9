"""A client of one bucket: recreated in forked children, with translation of errors.

`obstore` runs requests on its own threads. A forked child has none of them, so a request would
block forever. A child of a process that has used obstore therefore loads a second copy of its
native module, with its own state and threads.

    process           uses the imported module
    forked child      loads a copy of the file from memory

Errors distinguish possible outcomes. If no connection was established, no request was sent, and any
operation can be retried. Otherwise the outcome of a write is unknown until it is verified.

    could not connect                 StorageUnavailableError, not executed
    no response, broken one, 5xx      StorageUnavailableError; for put_if_absent: outcome unknown
    refused                           StorageError
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from email.message import Message
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from lancelet.errors import (
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    LanceletError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.io.credentials import (
    OptionsProvider,
    RefreshedOptions,
    credential_provider,
    profile_options,
)
from lancelet.io.fork import reset_after_fork
from lancelet.io.options import OUR_OPTIONS, check_endpoints, get_option, sort_options
from lancelet.io.retry import RetryPolicy
from lancelet.io.store import already_exists, not_found

_CLOUDS: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "adl": "az",
}
"""The cloud of each URI scheme."""

REMOTE_SCHEMES: Final = frozenset(_CLOUDS)
"""URI schemes of remote stores."""

_S3_CREDENTIALS: Final = (
    "aws_access_key_id",
    "access_key_id",
    "aws_skip_signature",
    "skip_signature",
)
"""Options that take precedence over the credentials of a profile."""

_S3_LOCATION_OPTIONS: Final = (
    "aws_region",
    "region",
    "aws_default_region",
    "default_region",
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_endpoint_url_s3",
    "endpoint",
    "endpoint_url",
)
"""Options that determine the location of a bucket; without them the region is requested from S3."""

_STATUS: Final = re.compile(r"status code: (\d{3})")
_NOT_SATISFIABLE: Final = 416
_SERVER_ERRORS: Final = 500
_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
"""Status codes of requests that can be retried."""

_TIMEOUT_SECONDS: Final = 5.0


class _Native:
    """The native module that this process may use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.module: Any = None
        self.is_copy_needed = False
        reset_after_fork(self, _Native.reset)

    def reset(self) -> None:
        """Require a copy of the module in a forked child, where its threads do not exist."""
        self.lock = threading.Lock()
        self.is_copy_needed = self.is_copy_needed or self.module is not None
        self.module = None

    def get(self) -> Any:
        """Return the module, loaded on the first call."""
        with self.lock:
            if self.module is None:
                self.module = _load_copy() if self.is_copy_needed else _load()
            return self.module


def _load() -> Any:
    from obstore import _obstore  # noqa: PLC0415  # costs 15 MB that local datasets never need

    return _obstore


def _load_copy() -> Any:
    """Load the native module from a copy of its file, which shares no state with the original."""
    if not hasattr(os, "memfd_create"):
        raise UnsupportedError(
            "a forked process cannot use remote storage on this system; start workers with spawn"
        )
    content = Path(_load().__file__).read_bytes()
    handle = os.memfd_create("obstore")
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content)
        path = f"/proc/self/fd/{handle}"
        loader = importlib.machinery.ExtensionFileLoader("_obstore", path)
        spec = importlib.util.spec_from_loader("_obstore", loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    finally:
        os.close(handle)
    return module


_NATIVE: Final = _Native()


class Client:
    """A bucket with its options and connections."""

    def __init__(
        self,
        scheme: str,
        authority: str,
        options: Mapping[str, str],
        provider: OptionsProvider | None,
    ) -> None:
        """Prepare a client, which connects on first use and again in each forked child."""
        self._cloud = _CLOUDS[scheme]
        self.url = f"{scheme}://{authority}"
        self._arguments = (scheme, authority, options, provider)
        self._options = sort_options(options)
        check_endpoints(options)
        self._refreshed = RefreshedOptions(provider) if provider is not None else None
        self._cached_stores: tuple[Any, Any, Any] | None = None
        self._ignored: list[str] = []

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by URI and options."""
        return (open_client, self._arguments)

    @property
    def retry(self) -> RetryPolicy:
        """The retry policy of requests."""
        return self._options.retry

    @property
    def lists_in_order(self) -> bool:
        """Whether listings are ordered by name; those of S3 directory buckets are not."""
        return not self.url.endswith("--x-s3")

    @property
    def native(self) -> Any:
        """The native module with the request functions."""
        return self._current()[0]

    @property
    def store(self) -> Any:
        """The store object for single requests, without automatic retries."""
        return self._current()[1]

    @property
    def upload_store(self) -> Any:
        """The store object for multipart uploads, which retries parts."""
        return self._current()[2]

    @contextmanager
    def errors(self, path: str) -> Iterator[None]:
        """Translate store errors for a path."""
        try:
            yield
        except (LanceletError, MemoryError):
            raise
        except FileNotFoundError as error:
            raise not_found(path) from error
        except ValueError as error:
            raise InvalidInputError(
                "the store refused a name or an option", path=path, reason=str(error)
            ) from error
        except _NATIVE.get().exceptions.BaseError as error:
            ignored = {"ignored_options": self._ignored} if self._ignored else {}
            raise self._translate(error, path).with_facts(**ignored) from error

    @contextmanager
    def outcome(self, path: str) -> Iterator[None]:
        """Like `errors`, but raise a separate error if the outcome of a write is unknown."""
        try:
            with self.errors(path):
                yield
        except StorageError as error:
            if not error.facts.get("sent"):
                raise
            raise CommitOutcomeUnknownError(
                (
                    "the store did not report whether the object was stored; check for it before "
                    "retrying"
                ),
                **error.facts,
            ) from error

    def _current(self) -> tuple[Any, Any, Any]:
        native = _NATIVE.get()
        stores = self._cached_stores
        # Two threads may both create one; either can be used.
        if stores is None or stores[0] is not native:
            stores = (native, self._make(native, retries=0), self._make(native, retries=None))
            self._cached_stores = stores
        return stores

    def _make(self, native: Any, *, retries: int | None) -> Any:
        config = dict(self._options.store)
        arguments: dict[str, Any] = {
            "client_options": dict(self._options.http),
            "retry_config": {
                "max_retries": self.retry.retries_max if retries is None else retries,
                "retry_timeout": timedelta(seconds=self.retry.timeout_seconds),
            },
        }
        if self._refreshed is not None:
            arguments["credential_provider"] = credential_provider(self._cloud, self._refreshed)
        elif self._cloud == "s3" and not _has_any(config, *_S3_CREDENTIALS):
            config = {**profile_options(), **config}
        elif self._cloud == "gs" and (token := config.pop("google_storage_token", None)):
            refreshed = RefreshedOptions(lambda: {"google_storage_token": token})
            arguments["credential_provider"] = credential_provider("gs", refreshed)
        if self._cloud == "s3" and not _has_any(config, *_S3_LOCATION_OPTIONS):
            bucket = self.url.partition("://")[2]
            config |= {"region": region} if (region := bucket_region(bucket)) else {}
        with self.errors(self.url):
            try:
                return native._store.from_url(self.url, config=config, **arguments)  # noqa: SLF001  # a copy has no public front
            except native.exceptions.UnknownConfigurationKeyError:
                supported = {key: config[key] for key in config if self._is_supported(native, key)}
                self._ignored = sorted(config.keys() - supported.keys() - OUR_OPTIONS)
                return native._store.from_url(self.url, config=supported, **arguments)  # noqa: SLF001  # the same

    def _is_supported(self, native: Any, key: str) -> bool:
        """Return whether the store supports an option, whatever its value."""
        try:
            native._store.from_url(self.url, config={key: ""})  # noqa: SLF001  # the same
        except native.exceptions.UnknownConfigurationKeyError:
            return False
        except (native.exceptions.BaseError, ValueError):
            return True
        return True

    def _translate(self, error: Exception, path: str) -> LanceletError:
        text = str(error)
        kinds = _NATIVE.get().exceptions
        # The remainder is a debug dump of the error for obstore developers.
        reason = text.partition("\n\nDebug source")[0]
        status = int(match[1]) if (match := _STATUS.search(reason)) else None
        if isinstance(error, kinds.AlreadyExistsError):
            return already_exists(path)
        if isinstance(error, kinds.NotSupportedError):
            return UnsupportedError(
                "the store does not support this operation", path=path, reason=reason
            )
        if isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError):
            return StorageError(
                "the store refused the credentials"
                + (_hint(reason) or "; check the storage options"),
                path=path,
                reason=reason,
            )
        if status == _NOT_SATISFIABLE or "NotPartial" in text:
            return CorruptDataError(
                "a byte range exceeds the object; was it truncated by a copy?",
                path=path,
                reason=reason,
            )
        if "Generic Config error" in reason or "MissingCredentials" in text:
            message = f"invalid storage options{_hint(reason)}"
            return InvalidInputError(message, path=path, reason=reason)
        if not isinstance(error, kinds.GenericError):
            message = f"the store refused a request{_hint(reason)}"
            return StorageError(message, path=path, reason=reason)
        # The error type does not indicate whether the request was sent. Without a response, or with
        # one that a proxy may have sent, the request may have been executed.
        if _is_transient(status, text):
            message = f"the store returned no valid response{_hint(reason)}"
            return StorageUnavailableError(message, path=path, reason=reason, sent=True)
        message = f"the store refused a request{_hint(reason)}"
        return StorageError(message, path=path, reason=reason, sent=status is None)


_NO_CREDENTIALS: Final = (
    "no credentials were found, and those of the machine are not available: set "
)
_HINTS: Final = (
    ("builder error", "an endpoint without TLS needs the storage option allow_http='true'"),
    ("169.254.169.254", f"{_NO_CREDENTIALS}aws_access_key_id and aws_secret_access_key"),
    ("metadata.google.internal", f"{_NO_CREDENTIALS}google_service_account"),
    ("GCP credential error", "check google_service_account, or GOOGLE_APPLICATION_CREDENTIALS"),
    ("Account must be specified", "set azure_storage_account_name"),
    ("InvalidAccessKeyId", "check aws_access_key_id"),
    ("SignatureDoesNotMatch", "check aws_secret_access_key and aws_region"),
    ("AuthorizationHeaderMalformed", "check aws_region"),
    ("PermanentRedirect", "check aws_region and aws_endpoint"),
    ("NoSuchBucket", "check the bucket in the URI, and aws_endpoint"),
    ("error sending request", "no response from the endpoint: check the endpoint and the network"),
)
"""Hints by characteristic text of the error; the first match wins."""


def _hint(reason: str) -> str:
    """Return a hint for an error message, or an empty string.

    >>> _hint("Generic MicrosoftAzure error: Account must be specified")
    '; set azure_storage_account_name'
    """
    return next((f"; {hint}" for pattern, hint in _HINTS if pattern in reason), "")


def open_client(
    scheme: str, authority: str, options: Mapping[str, str], provider: OptionsProvider | None = None
) -> Client:
    """Return the client of a bucket; equal arguments share a client and its connections."""
    return _shared_client(scheme, authority, tuple(sorted(options.items())), provider)


@lru_cache(maxsize=64)
def _shared_client(
    scheme: str,
    authority: str,
    options: tuple[tuple[str, str], ...],
    provider: OptionsProvider | None,
) -> Client:
    return Client(scheme, authority, dict(options), provider)


def _is_transient(status: int | None, text: str) -> bool:
    """Return whether a failure is transient: a network error, or a server that may recover."""
    if status is None:
        return "HttpError" in text
    return status >= _SERVER_ERRORS or status in _TRANSIENT_STATUSES


def _has_any(
    config: Mapping[str, str], *names: str, environment: Mapping[str, str] = os.environ
) -> bool:
    """Return whether the options or the environment contain one of the settings."""
    return get_option(config, *names) is not None or get_option(environment, *names) is not None


def bucket_region(
    bucket: str, *, head: Callable[[str], Message | None] | None = None
) -> str | None:
    """Return the region of a bucket, or None if S3 is not reachable.

    `head` sends a HEAD request and returns the response headers for any status.

    >>> headers = Message()
    >>> headers["x-amz-bucket-region"] = "eu-west-1"
    >>> bucket_region("shelf", head=lambda url: headers)
    'eu-west-1'
    """
    # Path-style requests, because certificates do not cover bucket names with dots.
    headers = (head or _head)(f"https://s3.amazonaws.com/{bucket}")
    return None if headers is None else headers.get("x-amz-bucket-region")


def _head(url: str) -> Message | None:
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310  # the URL is our own
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310  # the same
            headers: Message = response.headers
            return headers
    except urllib.error.HTTPError as error:
        # Error and redirect responses also include the region.
        error.close()
        return error.headers
    except OSError:
        return None

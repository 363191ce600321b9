"""Sources of credentials: options, a refreshed provider, or an AWS profile.

A provider is a callable that returns storage options. If they include `expires_at_millis`, the
provider is called again one minute before that time. All clients share the options until then, so
concurrent requests cause one call.

    called at 10:00       {"aws_access_key_id": ..., "expires_at_millis": 11:00}
    requests until 10:59  use these options
    requests from 10:59   call the provider again

Store objects obtain credentials from `credential_provider` in the format of their cloud.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.io.fork import reset_after_fork
from lancelet.io.options import EXPIRES_AT, get_option

OptionsProvider: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns currently valid storage options. Must be picklable for use in Spark."""

REFRESH_SECONDS: Final = 60.0
"""Time in seconds before expiration at which credentials are refreshed."""

_AZURE_SECRETS: Final = {
    "sas_token": ("sas_token", "azure_storage_sas_token", "azure_storage_sas_key", "sas_key"),
    "token": ("bearer_token", "azure_storage_token", "token"),
    "access_key": (
        "account_key",
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "access_key",
        "master_key",
    ),
}


class RefreshedOptions:
    """Options from a provider, cached until shortly before they expire."""

    def __init__(
        self,
        provider: OptionsProvider,
        *,
        clock: Callable[[], float] = lambda: surroundings.time_ns() / 1e9,
    ) -> None:
        """Call `provider` on first use; `clock` returns seconds since 1970."""
        self._provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._options: Mapping[str, str] | None = None
        self._expires_at = float("inf")
        reset_after_fork(self, RefreshedOptions._reset)

    def get(self) -> tuple[Mapping[str, str], datetime | None]:
        """Return valid options and their expiration time."""
        with self._lock:
            if self._options is None or self._clock() >= self._expires_at - REFRESH_SECONDS:
                self._options = dict(self._provider())
                self._expires_at = expiry_seconds(self._options)
            if self._expires_at == float("inf"):
                return self._options, None
            return self._options, datetime.fromtimestamp(self._expires_at, UTC)

    def _reset(self) -> None:
        self._lock = threading.Lock()


def expiry_seconds(options: Mapping[str, str]) -> float:
    """Return the expiration time in seconds since 1970, or infinity if it is not given.

    >>> expiry_seconds({"expires_at_millis": "1500"}), expiry_seconds({})
    (1.5, inf)
    """
    text = get_option(options, EXPIRES_AT)
    if text is None:
        return float("inf")
    if not text.isdigit():
        raise InvalidInputError(
            "the expiration time must be a number of milliseconds", name=EXPIRES_AT, found=text
        )
    return int(text) / 1000


def credential_provider(scheme: str, refreshed: RefreshedOptions) -> Callable[[], dict[str, Any]]:
    """Return a callable that provides credentials in the format of a cloud.

    >>> refreshed = RefreshedOptions(lambda: {"google_storage_token": "t"})
    >>> credential_provider("gs", refreshed)()
    {'token': 't', 'expires_at': None}
    """
    shape = _SHAPES[scheme]

    def get_credentials() -> dict[str, Any]:
        options, expires_at = refreshed.get()
        return {**shape(options), "expires_at": expires_at}

    return get_credentials


def profile_options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys of the current AWS profile from the shared credentials file.

    Roles and single sign-on are not supported; use a provider for them.
    """
    import configparser  # noqa: PLC0415 - slow import, needed for profiles only

    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "~").expanduser()
    name = environment.get("AWS_PROFILE", "default")
    entries: dict[str, str] = {}
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(environment.get(variable) or home / ".aws" / default)
        parser = configparser.RawConfigParser()
        parser.read(path, encoding="utf-8")
        if parser.has_section(section):
            entries.update(parser.items(section))
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")
    return {key: entries[key] for key in names if key in entries}


def _s3(options: Mapping[str, str]) -> dict[str, Any]:
    key = get_option(options, "aws_access_key_id", "access_key_id")
    secret = get_option(options, "aws_secret_access_key", "secret_access_key")
    if key is None or secret is None:
        raise _missing_credentials(options, "aws_access_key_id and aws_secret_access_key")
    token = get_option(options, "aws_session_token", "session_token", "aws_token", "token")
    return {"access_key_id": key, "secret_access_key": secret, "token": token}


def _gs(options: Mapping[str, str]) -> dict[str, Any]:
    token = get_option(options, "google_storage_token", "token")
    if token is None:
        raise _missing_credentials(options, "google_storage_token")
    return {"token": token}


def _azure(options: Mapping[str, str]) -> dict[str, Any]:
    for secret, names in _AZURE_SECRETS.items():
        value = get_option(options, *names)
        if value is not None:
            return {secret: value}
    raise _missing_credentials(
        options, "azure_storage_sas_token, azure_storage_token or an account key"
    )


def _missing_credentials(options: Mapping[str, str], needed: str) -> InvalidInputError:
    # Do not include values, which are secrets.
    return InvalidInputError(
        "the provider returned no credentials for this store", needed=needed, found=sorted(options)
    )


_SHAPES: Final[Mapping[str, Callable[[Mapping[str, str]], dict[str, Any]]]] = {
    "s3": _s3,
    "gs": _gs,
    "az": _azure,
}

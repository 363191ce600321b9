"""Where credentials come from: the options, a provider that is asked again, or a profile.

A provider is any callable that returns storage options. When `expires_at_millis` is among them
it is asked again a minute before that moment; what it returned until then is used by every
client, so many threads cost one question.

    asked at 10:00        {"aws_access_key_id": ..., "expires_at_millis": 11:00}
    requests until 10:59  use these
    requests from 10:59   asked again

A store object asks through `credential_provider`, in the shape that its cloud wants.
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
from lancelet.io.fork import renew_after_fork
from lancelet.io.options import EXPIRES_AT, option_of

OptionsProvider: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns storage options that are valid now; it must be picklable to be used in Spark."""

REFRESH_SECONDS: Final = 60.0
"""How long before credentials expire new ones are asked for."""

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
    """Options from a provider, kept until shortly before they expire."""

    def __init__(
        self,
        provider: OptionsProvider,
        *,
        clock: Callable[[], float] = lambda: surroundings.time_ns() / 1e9,
    ) -> None:
        """Ask `provider` when first needed; `clock` gives seconds since 1970."""
        self._provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._options: Mapping[str, str] | None = None
        self._expires_at = float("inf")
        renew_after_fork(self, RefreshedOptions._renew)

    def get(self) -> tuple[Mapping[str, str], datetime | None]:
        """Return options that are valid, and when they expire."""
        with self._lock:
            if self._options is None or self._clock() >= self._expires_at - REFRESH_SECONDS:
                self._options = dict(self._provider())
                self._expires_at = expiry_seconds(self._options)
            if self._expires_at == float("inf"):
                return self._options, None
            return self._options, datetime.fromtimestamp(self._expires_at, UTC)

    def _renew(self) -> None:
        self._lock = threading.Lock()


def expiry_seconds(options: Mapping[str, str]) -> float:
    """Return when options expire, in seconds since 1970; without the option that is never.

    >>> expiry_seconds({"expires_at_millis": "1500"}), expiry_seconds({})
    (1.5, inf)
    """
    text = option_of(options, EXPIRES_AT)
    if text is None:
        return float("inf")
    if not text.isdigit():
        raise InvalidInputError("a time of expiry is in milliseconds", name=EXPIRES_AT, found=text)
    return int(text) / 1000


def credential_provider(scheme: str, refreshed: RefreshedOptions) -> Callable[[], dict[str, Any]]:
    """Return what a store object of a cloud asks for credentials.

    >>> refreshed = RefreshedOptions(lambda: {"google_storage_token": "t"})
    >>> credential_provider("gs", refreshed)()
    {'token': 't', 'expires_at': None}
    """
    shape = _SHAPES[scheme]

    def ask() -> dict[str, Any]:
        options, expires_at = refreshed.get()
        return {**shape(options), "expires_at": expires_at}

    return ask


def profile_options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys of the AWS profile in use, from the shared credentials file, if any.

    Roles and single sign-on are not resolved here; give a provider for these.
    """
    import configparser  # noqa: PLC0415 - only who has a profile waits for it

    home = Path(environment.get("HOME") or environment.get("USERPROFILE") or "~").expanduser()
    name = environment.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(environment.get(variable) or home / ".aws" / default)
        parser = configparser.RawConfigParser()
        parser.read(path, encoding="utf-8")
        if parser.has_section(section):
            found.update(parser.items(section))
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")
    return {key: found[key] for key in names if key in found}


def _s3(options: Mapping[str, str]) -> dict[str, Any]:
    key = option_of(options, "aws_access_key_id", "access_key_id")
    secret = option_of(options, "aws_secret_access_key", "secret_access_key")
    if key is None or secret is None:
        raise _incomplete(options, "aws_access_key_id and aws_secret_access_key")
    token = option_of(options, "aws_session_token", "session_token", "aws_token", "token")
    return {"access_key_id": key, "secret_access_key": secret, "token": token}


def _gs(options: Mapping[str, str]) -> dict[str, Any]:
    token = option_of(options, "google_storage_token", "token")
    if token is None:
        raise _incomplete(options, "google_storage_token")
    return {"token": token}


def _azure(options: Mapping[str, str]) -> dict[str, Any]:
    for secret, names in _AZURE_SECRETS.items():
        value = option_of(options, *names)
        if value is not None:
            return {secret: value}
    raise _incomplete(options, "azure_storage_sas_token, azure_storage_token or an account key")


def _incomplete(options: Mapping[str, str], needed: str) -> InvalidInputError:
    # Values are secrets; names are not.
    return InvalidInputError(
        "the provider returned no credentials for this store", needed=needed, found=sorted(options)
    )


_SHAPES: Final[Mapping[str, Callable[[Mapping[str, str]], dict[str, Any]]]] = {
    "s3": _s3,
    "gs": _gs,
    "az": _azure,
}

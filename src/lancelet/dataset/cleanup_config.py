"""Cleaning up as part of commits: what a caller asks for, as config of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lancelet.errors import InvalidInputError

_CLEANUP: Final = "lance.auto_cleanup"


def auto_cleanup_config(options: Mapping[str, int]) -> dict[str, str]:
    """Return the config that makes every so many commits clean up what is old.

    >>> auto_cleanup_config({"interval": 3, "older_than_seconds": 100})
    {'lance.auto_cleanup.interval': '3', 'lance.auto_cleanup.older_than': '1m 40s'}
    """
    unknown = sorted(set(options) - {"interval", "older_than_seconds", "retain_versions"})
    if unknown:
        raise InvalidInputError("no setting of cleaning up has that name", name=unknown[0])
    config: dict[str, str] = {}
    if "interval" in options:
        config[f"{_CLEANUP}.interval"] = str(options["interval"])
    if "older_than_seconds" in options:
        config[f"{_CLEANUP}.older_than"] = _duration(options["older_than_seconds"])
    if "retain_versions" in options:
        config[f"{_CLEANUP}.retain_versions"] = str(options["retain_versions"])
    return config


def _duration(seconds: int) -> str:
    parts = []
    for unit, size in (("days", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            name = "day" if unit == "days" and count == 1 else unit
            parts.append(f"{count}{name}")
    return " ".join(parts) or "0s"

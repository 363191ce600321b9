"""Tags and branches: names of versions, each a small JSON file in the main table directory.

    _refs/tags/v1.json          {"branch": null, "version": 2, "createdAt": "2026-01-01T..Z", ...}
    _refs/branches/dev%2Fx.json {"parentBranch": null, "identifier": {..}, "parentVersion": 1, ...}

A branch is a table below `tree`. Its identifier lists, starting from the main branch, the parent
version and a random id of each ancestor branch; recreating a deleted branch yields another
identifier. Tag times are RFC 3339, branch times whole seconds since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import numpy as np

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.paths import TABLE_FOLDERS
from lancelet.kernels import crc32c
from lancelet.values import dataclass

MAIN: Final = "main"
"""The user-visible name of the branch that files represent by null."""

_CHECKSUM: Final = "lancelet.crc32c"
_NANOSECONDS: Final = 1_000_000_000
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)"
)

T = TypeVar("T")


class RefNameError(InvalidInputError, OSError):
    """A tag or branch name is invalid."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version of a branch; `branch` is None for the main branch.

    `extra` preserves entries that a later release wrote.
    """

    branch: str | None
    version: int
    manifest_bytes: int
    created_at_ns: int | None = None
    updated_at_ns: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class BranchStep:
    """A step from the main branch to a branch: the parent version and the branch id."""

    parent_version: int
    id: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and the version it was created from; `parent_branch` is None for the main branch."""

    parent_branch: str | None
    parent_version: int
    created_at: int
    manifest_bytes: int
    identifier: tuple[BranchStep, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


def parse_tag(data: bytes) -> Tag:
    """Parse the file of a tag."""
    entries = _load(data)
    return Tag(
        branch=_pop(entries, "branch", _optional_text, default=None),
        version=_pop(entries, "version", _number),
        manifest_bytes=_pop(entries, "manifestSize", _number, default=0),
        created_at_ns=_pop(entries, "createdAt", _time, default=None),
        updated_at_ns=_pop(entries, "updatedAt", _time, default=None),
        metadata=_pop(entries, "metadata", _texts, default={}),
        extra=entries,
    )


def render_tag(tag: Tag) -> bytes:
    """Serialize a tag."""
    return _dump(
        {
            "branch": tag.branch,
            "version": tag.version,
            "createdAt": _format_time(tag.created_at_ns),
            "updatedAt": _format_time(tag.updated_at_ns),
            "manifestSize": tag.manifest_bytes,
            "metadata": dict(tag.metadata),
            **tag.extra,
        }
    )


def parse_branch(data: bytes) -> Branch:
    """Parse the file of a branch."""
    entries = _load(data)
    return Branch(
        parent_branch=_pop(entries, "parentBranch", _optional_text, default=None),
        parent_version=_pop(entries, "parentVersion", _number),
        created_at=_pop(entries, "createAt", _number, default=0),
        manifest_bytes=_pop(entries, "manifestSize", _number, default=0),
        identifier=_pop(entries, "identifier", _steps, default=None),
        metadata=_pop(entries, "metadata", _texts, default={}),
        extra=entries,
    )


def render_branch(branch: Branch) -> bytes:
    """Serialize a branch."""
    identifier = None
    if branch.identifier is not None:
        steps = [[step.parent_version, step.id] for step in branch.identifier]
        identifier = {"version_mapping": steps}
    return _dump(
        {
            "parentBranch": branch.parent_branch,
            "identifier": identifier,
            "parentVersion": branch.parent_version,
            "createAt": branch.created_at,
            "manifestSize": branch.manifest_bytes,
            "metadata": dict(branch.metadata),
            **branch.extra,
        }
    )


def check_tag_name(name: str) -> str:
    """Return the name. Raise if it is not a valid tag name."""
    if not _is_name(name) or name[0] == "." or name[-1] == ".":
        raise RefNameError(
            (
                "a tag name must consist of letters, digits, '.', '-' and '_', without a dot at "
                "either end"
            ),
            name=name,
        )
    _check_dots(name)
    return name


def check_branch_name(name: str) -> str:
    """Return the name. Raise if it is not a valid branch name.

    >>> check_branch_name("dev/x")
    'dev/x'
    """
    if name == MAIN:
        raise RefNameError(
            "the main branch always exists and cannot be created, deleted or changed", name=name
        )
    if not all(map(_is_name, name.split("/"))):
        raise RefNameError(
            (
                "a branch name must consist of parts of letters, digits, '.', '-' and '_', joined "
                "by '/'"
            ),
            name=name,
        )
    _check_dots(name)
    return name


def check_new_branch_name(name: str) -> str:
    """Return the name. Raise if it is not valid for a new branch.

    A branch is a directory, and inside the directory of another branch some names are reserved for
    its files. The reference creates such branches; they can be opened and deleted.

    >>> check_new_branch_name("data/x")
    'data/x'
    """
    check_branch_name(name)
    reserved = TABLE_FOLDERS.intersection(name.split("/")[1:])
    if reserved:
        raise RefNameError(
            "the branch would be inside a table directory of another branch; choose another name",
            name=name,
            reserved=sorted(reserved),
        )
    return name


def _is_name(text: str) -> bool:
    """Return whether text consists of letters and digits of any script, '.', '-' and '_'."""
    return bool(text) and all(each.isalnum() or each in "._-" for each in text)


def _check_dots(name: str) -> None:
    if ".." in name or name.endswith(".lock"):
        raise RefNameError("a name must not contain '..' or end with '.lock'", name=name)


def _load(data: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(
            "a tag or branch file is not valid JSON", file_bytes=len(data)
        ) from error
    if not isinstance(entries, dict):
        raise CorruptDataError(
            "a tag or branch file is not a JSON object", found=type(entries).__name__
        )
    recorded = entries.pop(_CHECKSUM, None)
    if recorded not in {None, _entries_checksum(entries)}:
        raise CorruptDataError(
            "a tag or branch file is damaged: its checksum does not match", stated_crc32c=recorded
        )
    return entries


def with_checksum(data: bytes) -> bytes:
    """Return a tag or branch file with a checksum entry, which other readers ignore."""
    entries = _load(data)
    return _dump({**entries, _CHECKSUM: _entries_checksum(entries)})


def _entries_checksum(entries: Mapping[str, Any]) -> str:
    """Return the checksum of entries, independent of their order and formatting."""
    text = json.dumps(entries, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
    return f"{crc32c(np.frombuffer(text, np.uint8)):08x}"


def _dump(entries: Mapping[str, Any]) -> bytes:
    present = {key: value for key, value in entries.items() if not _is_omitted(key, value)}
    return json.dumps(present, indent=2, ensure_ascii=False).encode()


def _is_omitted(key: str, value: object) -> bool:
    """Return whether an entry is omitted because older releases do not write it."""
    return value is None and key in ("identifier", "createdAt", "updatedAt")


_REQUIRED: Final[Any] = object()


def _pop(entries: dict[str, Any], key: str, read: Callable[[Any], T], default: T = _REQUIRED) -> T:
    """Remove an entry and return its value."""
    if key not in entries and default is not _REQUIRED:
        return default
    try:
        return read(entries.pop(key))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError("an entry of a tag or branch file is invalid", entry=key) from error


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise TypeError(value)
    return value


def _optional_text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise TypeError(value)
    return value


def _steps(value: Any) -> tuple[BranchStep, ...] | None:
    if value is None:
        return None
    steps = [(_number(version), _optional_text(step)) for version, step in value["version_mapping"]]
    return tuple(BranchStep(version, step or "") for version, step in steps)


def _time(value: object) -> int | None:
    """Convert an RFC 3339 time to nanoseconds since 1970."""
    text = _optional_text(value)
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    moment, fraction, zone = match.groups()
    offset = "+00:00" if zone in "Zz" else zone
    seconds = int(datetime.fromisoformat(moment.replace("t", "T") + offset).timestamp())
    return seconds * _NANOSECONDS + int((fraction or "").ljust(9, "0"))


def _format_time(time_ns: int | None) -> str | None:
    """Format a time as RFC 3339 with 0, 3, 6 or 9 fractional digits, as few as possible.

    >>> _format_time(1_000_000_005), _format_time(2_000_500_000), _format_time(3_000_000_000)
    ('1970-01-01T00:00:01.000000005Z', '1970-01-01T00:00:02.000500Z', '1970-01-01T00:00:03Z')
    """
    if time_ns is None:
        return None
    seconds, fraction = divmod(time_ns, _NANOSECONDS)
    moment = datetime.fromtimestamp(seconds, UTC)
    digits = f".{fraction:09}" if fraction else ""
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{moment:%Y-%m-%dT%H:%M:%S}{digits}Z"

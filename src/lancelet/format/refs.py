"""Tags and branches: names for versions, each a small JSON file in the main table's directory.

    _refs/tags/v1.json          {"branch": null, "version": 2, "createdAt": "2026-01-01T..Z", ...}
    _refs/branches/dev%2Fx.json {"parentBranch": null, "identifier": {..}, "parentVersion": 1, ...}

A branch is a table of its own below `tree`. Its identifier lists, from the main branch down,
the version that each branch on the way was made from and a random id, so that a branch that was
deleted and made again is another one. Times are of a tag RFC 3339, of a branch whole seconds.
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
"""How users name the branch that files leave unnamed."""

_CHECKSUM: Final = "lancelet.crc32c"
_NANOSECONDS: Final = 1_000_000_000
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)"
)

T = TypeVar("T")


class RefNameError(InvalidInputError, OSError):
    """A tag or branch cannot have that name."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version of a branch; `branch` is None for the main one.

    `extra` holds entries that a later release wrote.
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
    """One branch on the way from the main one: where it was made, and which one it is."""

    parent_version: int
    id: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: the version it was made from; `parent_branch` is None for the main one."""

    parent_branch: str | None
    parent_version: int
    created_at: int
    manifest_bytes: int
    identifier: tuple[BranchStep, ...] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


def parse_tag(data: bytes) -> Tag:
    """Return the tag of its file."""
    entries = _load(data)
    return Tag(
        branch=_take(entries, "branch", _optional_text, default=None),
        version=_take(entries, "version", _number),
        manifest_bytes=_take(entries, "manifestSize", _number, default=0),
        created_at_ns=_take(entries, "createdAt", _time, default=None),
        updated_at_ns=_take(entries, "updatedAt", _time, default=None),
        metadata=_take(entries, "metadata", _texts, default={}),
        extra=entries,
    )


def render_tag(tag: Tag) -> bytes:
    """Return the file of a tag."""
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
    """Return the branch of its file."""
    entries = _load(data)
    return Branch(
        parent_branch=_take(entries, "parentBranch", _optional_text, default=None),
        parent_version=_take(entries, "parentVersion", _number),
        created_at=_take(entries, "createAt", _number, default=0),
        manifest_bytes=_take(entries, "manifestSize", _number, default=0),
        identifier=_take(entries, "identifier", _steps, default=None),
        metadata=_take(entries, "metadata", _texts, default={}),
        extra=entries,
    )


def render_branch(branch: Branch) -> bytes:
    """Return the file of a branch."""
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
    """Return the name if a tag may have it."""
    if not _is_name(name) or name[0] == "." or name[-1] == ".":
        raise RefNameError(
            "a tag is made of letters, digits, '.', '-' and '_', and has no dot at its ends",
            name=name,
        )
    _check_dots(name)
    return name


def check_branch_name(name: str) -> str:
    """Return the name if a branch may have it.

    >>> check_branch_name("dev/x")
    'dev/x'
    """
    if name == MAIN:
        raise RefNameError("the main branch exists already", name=name)
    if not all(map(_is_name, name.split("/"))):
        raise RefNameError(
            "a branch is made of parts joined by '/', of letters, digits, '.', '-' and '_'",
            name=name,
        )
    _check_dots(name)
    return name


def check_new_branch_name(name: str) -> str:
    """Return the name if a branch may be made under it.

    A branch is a folder, and within the folder of another branch some names are taken by files of
    that one. The reference makes such branches; they can be opened and deleted.

    >>> check_new_branch_name("data/x")
    'data/x'
    """
    check_branch_name(name)
    taken = TABLE_FOLDERS.intersection(name.split("/")[1:])
    if taken:
        raise RefNameError(
            "the branch would lie among the files of another one; choose another name",
            name=name,
            reserved=sorted(taken),
        )
    return name


def _is_name(text: str) -> bool:
    """Return whether text is made of letters and digits of any script, '.', '-' and '_'."""
    return bool(text) and all(each.isalnum() or each in "._-" for each in text)


def _check_dots(name: str) -> None:
    if ".." in name or name.endswith(".lock"):
        raise RefNameError("a name must not hold '..' or end with '.lock'", name=name)


def _load(data: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError("a tag or branch is not JSON", file_bytes=len(data)) from error
    if not isinstance(entries, dict):
        raise CorruptDataError("a tag or branch is not an object", found=type(entries).__name__)
    stated = entries.pop(_CHECKSUM, None)
    if stated not in {None, _checksum_of(entries)}:
        raise CorruptDataError("a tag or branch is not as it was written", stated_crc32c=stated)
    return entries


def with_checksum(data: bytes) -> bytes:
    """Return the file of a tag or branch with a checksum of its entries, which others skip."""
    entries = _load(data)
    return _dump({**entries, _CHECKSUM: _checksum_of(entries)})


def _checksum_of(entries: Mapping[str, Any]) -> str:
    """Return the checksum of entries, in whatever order and form they are written."""
    text = json.dumps(entries, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
    return f"{crc32c(np.frombuffer(text, np.uint8)):08x}"


def _dump(entries: Mapping[str, Any]) -> bytes:
    present = {key: value for key, value in entries.items() if not _is_left_out(key, value)}
    return json.dumps(present, indent=2, ensure_ascii=False).encode()


def _is_left_out(key: str, value: object) -> bool:
    """Return whether an entry that older releases lack stays away."""
    return value is None and key in ("identifier", "createdAt", "updatedAt")


_REQUIRED: Final[Any] = object()


def _take(entries: dict[str, Any], key: str, read: Callable[[Any], T], default: T = _REQUIRED) -> T:
    """Remove an entry and return its value."""
    if key not in entries and default is not _REQUIRED:
        return default
    try:
        return read(entries.pop(key))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError("an entry of a tag or branch is unsound", entry=key) from error


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
    """Return nanoseconds since 1970 of a time in RFC 3339."""
    text = _optional_text(value)
    if text is None:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    moment, fraction, zone = found.groups()
    offset = "+00:00" if zone in "Zz" else zone
    seconds = int(datetime.fromisoformat(moment.replace("t", "T") + offset).timestamp())
    return seconds * _NANOSECONDS + int((fraction or "").ljust(9, "0"))


def _format_time(time_ns: int | None) -> str | None:
    """Return a time in RFC 3339 with none, three, six or nine digits, as few as say it.

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

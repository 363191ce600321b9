"""File and directory names within a table directory.

    data/<24 binary digits><26 hex digits>.lance     distributed over object store partitions
    _versions/18446744073709551612.manifest          version 3, descending (V2)
    _versions/3.manifest                             version 3 (V1)
    _versions/d9223372036854775815.manifest          a detached version
    _transactions/2-<uuid>.txn                       a transaction based on version 2
    _deletions/0-2-<id>.arrow                        deleted rows of fragment 0
    _refs/branches/dev%2Fx.json                      the branch dev/x, stored in tree/dev/x

Listings sort names as text. V2 names are descending, so the newest manifest is on the first page,
and opening a table needs one listing.
"""

from __future__ import annotations

import json
import re
import uuid
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.values import dataclass

DATA: Final = "data"
VERSIONS: Final = "_versions"
TRANSACTIONS: Final = "_transactions"
DELETIONS: Final = "_deletions"
INDICES: Final = "_indices"
REFS: Final = "_refs"
TAGS: Final = f"{REFS}/tags"
BRANCHES: Final = f"{REFS}/branches"
TREE: Final = "tree"
MEM_WAL: Final = "_mem_wal"

TABLE_FOLDERS: Final = frozenset({DATA, VERSIONS, TRANSACTIONS, DELETIONS, INDICES, REFS, MEM_WAL})
"""Directories that contain the files of a table or a branch."""

DATA_SUFFIX: Final = ".lance"
MANIFEST_SUFFIX: Final = ".manifest"
TRANSACTION_SUFFIX: Final = ".txn"
LATEST_VERSION_HINT: Final = f"{VERSIONS}/latest_version_hint.json"
RENAMING: Final = f"{VERSIONS}/.renaming"
"""Exists while the manifests of a table are renamed to the other naming scheme."""

LATEST_MANIFEST: Final = "_latest.manifest"
"""A copy of the newest manifest, written by the first releases of the reference."""

VERSION_MAX: Final = 2**64 - 1
DETACHED_BIT: Final = 1 << 63

_REF_SUFFIX: Final = ".json"
V2_DIGITS: Final = 20
_MANIFEST: Final = re.compile(r"(d?)(\d{1,20})\.manifest(?:-([0-9a-fA-F-]{32,36}))?")
_HINT: Final = re.compile(rb'\s*\{\s*"version"\s*:\s*(\d{1,20})\s*\}\s*')


class VersionRangeError(InvalidInputError, OverflowError):
    """A version number is negative or exceeds the maximum."""


class ManifestNaming(Enum):
    """The naming scheme of manifests; all manifests of a table use the same scheme."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class ManifestName:
    """A parsed manifest file name.

    `staging_id` is set for a manifest that an external manifest store has not finalized.
    """

    version: int
    naming: ManifestNaming
    staging_id: str | None = None

    @property
    def is_detached(self) -> bool:
        """Whether the version is detached, that is, not on any branch."""
        return is_detached(self.version)


def is_detached(version: int) -> bool:
    """Return whether a version number denotes a detached version."""
    return bool(version & DETACHED_BIT)


def manifest_name(version: int, naming: ManifestNaming = ManifestNaming.V2) -> str:
    """Return the file name of a manifest.

    >>> manifest_name(3), manifest_name(3, ManifestNaming.V1)
    ('18446744073709551612.manifest', '3.manifest')
    """
    if not 0 <= version <= VERSION_MAX:
        raise VersionRangeError("a version must be an unsigned 64-bit number", version=version)
    if is_detached(version):
        return f"d{version}{MANIFEST_SUFFIX}"
    if naming is ManifestNaming.V1:
        return f"{version}{MANIFEST_SUFFIX}"
    return f"{VERSION_MAX - version:0{V2_DIGITS}}{MANIFEST_SUFFIX}"


def manifest_path(version: int, naming: ManifestNaming = ManifestNaming.V2) -> str:
    """Return the path of a manifest relative to the table root."""
    return f"{VERSIONS}/{manifest_name(version, naming)}"


def parse_manifest_name(name: str) -> ManifestName | None:
    """Parse a file name in `_versions`, or return None if it is not a manifest name.

    >>> parse_manifest_name("18446744073709551612.manifest").version
    3
    """
    match = _MANIFEST.fullmatch(name)
    if match is None:
        return None
    detached, digits, staging_id = match.groups()
    number = int(digits)
    if number > VERSION_MAX:
        return None
    if detached:
        is_valid = is_detached(number)
        return ManifestName(number, ManifestNaming.V2, staging_id) if is_valid else None
    if len(digits) == V2_DIGITS:
        return ManifestName(VERSION_MAX - number, ManifestNaming.V2, staging_id)
    return ManifestName(number, ManifestNaming.V1, staging_id)


def staged_manifest_path(final_path: str, staging_id: uuid.UUID) -> str:
    """Return the staging path of a manifest until an external manifest store accepts it."""
    return f"{final_path}-{staging_id}"


_PREFIX_DIGITS: Final = 24
"""Number of leading binary digits of a data file name, which distribute files in a bucket."""


def data_file_name(identity: uuid.UUID) -> str:
    """Return the name of a data file.

    >>> data_file_name(uuid.UUID(int=1))
    '00000000000000000000000000000000000000000000000001.lance'
    """
    head, tail = identity.bytes[: _PREFIX_DIGITS // 8], identity.bytes[_PREFIX_DIGITS // 8 :]
    return "".join(f"{byte:08b}" for byte in head) + tail.hex() + DATA_SUFFIX


def data_file_identity(path: str) -> str:
    """Return the part of a data file name that its copies share.

    >>> data_file_identity("data/" + data_file_name(uuid.UUID(int=1)))
    '00000000000000000000000001.lance'
    """
    return path.rpartition("/")[2][_PREFIX_DIGITS:]


def renamed_data_file(path: str, identity: uuid.UUID) -> str:
    """Return a new name for a copy of a data file that preserves the identity of the file.

    >>> renamed_data_file("data/" + data_file_name(uuid.UUID(int=1)), uuid.UUID(int=1 << 127))
    '10000000000000000000000000000000000000000000000001.lance'
    """
    name = data_file_name(identity)
    preserved = data_file_identity(path)
    return (
        name[:_PREFIX_DIGITS] + preserved
        if len(preserved) == len(data_file_identity(name))
        else name
    )


def blob_file_path(data_file: str, blob_id: int) -> str:
    """Return the path of a blob sidecar of a data file, relative to `data`.

    >>> blob_file_path("a.lance", 2)
    'a/01000000000000000000000000000000.blob'
    """
    if not 0 <= blob_id < 1 << 32:
        raise InvalidInputError("a blob id must be an unsigned 32-bit number", blob_id=blob_id)
    bits = f"{blob_id:032b}"[::-1]
    return f"{blob_folder(data_file)}/{bits}.blob"


def blob_folder(data_file: str) -> str:
    """Return the directory of the blob sidecars of a data file."""
    return data_file.removesuffix(DATA_SUFFIX)


def transaction_file_name(read_version: int, identity: str) -> str:
    """Return the name of a transaction file."""
    return f"{read_version}-{identity}{TRANSACTION_SUFFIX}"


def index_directory(identity: uuid.UUID) -> str:
    """Return the directory of an index segment, relative to the root of its base."""
    return f"{INDICES}/{identity}"


def index_file_identity(path: str) -> str:
    """Return the segment id and file name of an index file; file names alone are not unique.

    >>> index_file_identity("_indices/f3d7/page_data.lance")
    'f3d7/page_data.lance'
    """
    return "/".join(path.rsplit("/", 2)[-2:])


def tag_path(name: str) -> str:
    """Return the path of a tag, relative to the root of the main table.

    >>> tag_path("größe")
    '_refs/tags/gr%C3%B6%C3%9Fe.json'
    """
    return f"{TAGS}/{quote(name, safe='')}{_REF_SUFFIX}"


def branch_path(name: str) -> str:
    """Return the path of a branch file, relative to the root of the main table.

    >>> branch_path("dev/x")
    '_refs/branches/dev%2Fx.json'
    """
    return f"{BRANCHES}/{quote(name, safe='')}{_REF_SUFFIX}"


def parse_ref_name(file_name: str) -> str | None:
    """Return the tag or branch of a file name in `_refs`, or None for other files.

    >>> parse_ref_name("dev%2Fx.json")
    'dev/x'
    """
    if not file_name.endswith(_REF_SUFFIX):
        return None
    return unquote(file_name.removesuffix(_REF_SUFFIX))


def is_inside_table_directory(branch: str, other: str) -> bool:
    """Return whether the directory of a branch is inside a table directory of another branch.

    >>> is_inside_table_directory("x/data", "x"), is_inside_table_directory("x/y", "x")
    (True, False)
    """
    head, _, rest = branch.partition(f"{other}/")
    return not head and rest.partition("/")[0] in TABLE_FOLDERS


def branch_root(name: str) -> str:
    """Return the directory of a branch, relative to the root of the main table."""
    return f"{TREE}/{name}"


def render_version_hint(version: int) -> bytes:
    """Serialize the hint that records the latest version.

    >>> render_version_hint(7)
    b'{"version":7}'
    """
    return json.dumps({"version": version}, separators=(",", ":")).encode()


def parse_version_hint(data: bytes) -> int | None:
    """Parse a version hint, or return None if it is malformed.

    A hint may be outdated, so listings take precedence.
    """
    match = _HINT.fullmatch(data)
    return int(match[1]) if match else None


def check_relative_path(path: str) -> str:
    """Return a stored path. Raise if it escapes the directory it is relative to."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or not path or "\0" in path:
        raise CorruptDataError("a stored path is outside of its directory", path=path)
    return path

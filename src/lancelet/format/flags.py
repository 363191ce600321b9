"""Feature flags: what a reader or a writer of a version must understand.

A manifest carries two words. A reader that meets a bit it does not know in the first must not
read, and a writer that meets one in the second must change nothing: neither commit, nor clean up,
nor make a branch, tag or clone of the version. Some features bind both, and a manifest that sets
only one of the two bits contradicts itself.

    reader 1, writer 1 | 8    deletion files; and a config that writers must keep
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lancelet.errors import CorruptDataError, UnsupportedError


class Feature(IntEnum):
    """The bits of both words."""

    DELETION_FILES = 1
    STABLE_ROW_IDS = 2
    V2_FORMAT = 4
    TABLE_CONFIG = 8
    BASE_PATHS = 16
    NO_TRANSACTION_FILE = 32
    DATA_OVERLAYS = 64
    COVERING_INDEX_FIELDS = 128
    MIXED_FILE_VERSIONS = 256
    FRAGMENT_REUSE_WITH_STABLE_ROW_IDS = 512
    TAGGED_FRAGMENT_REUSE = 1024
    SPILLED_ROW_LINEAGE = 2048
    FRAGMENT_TREE = 4096
    INDEPENDENT_COVERING_FIELDS = 8192
    MANAGED_BLOBS = 16384
    NON_REUSABLE_FIELD_IDS = 32768
    ZONE_WRITE_SEED = 65536


UNDERSTOOD: Final = (
    Feature.DELETION_FILES
    | Feature.STABLE_ROW_IDS
    | Feature.V2_FORMAT
    | Feature.TABLE_CONFIG
    | Feature.BASE_PATHS
    | Feature.NO_TRANSACTION_FILE
    | Feature.DATA_OVERLAYS
    | Feature.COVERING_INDEX_FIELDS
    | Feature.MIXED_FILE_VERSIONS
    | Feature.TAGGED_FRAGMENT_REUSE
    | Feature.SPILLED_ROW_LINEAGE
    | Feature.MANAGED_BLOBS
    | Feature.NON_REUSABLE_FIELD_IDS
)
"""The features that this release reads and keeps intact when it writes."""

PAIRED: Final = (
    Feature.MIXED_FILE_VERSIONS
    | Feature.TAGGED_FRAGMENT_REUSE
    | Feature.MANAGED_BLOBS
    | Feature.ZONE_WRITE_SEED
)
"""Features that are set in both words or in neither."""

WRITERS_ONLY: Final = Feature.NON_REUSABLE_FIELD_IDS
"""Features that readers need not know, so that it is an error to ask it of them."""

DERIVED: Final = (
    Feature.DELETION_FILES
    | Feature.TABLE_CONFIG
    | Feature.BASE_PATHS
    | Feature.DATA_OVERLAYS
    | Feature.SPILLED_ROW_LINEAGE
)
"""Features that follow from the content of a version, so that every commit sets them anew."""


def check_readable(reader: int, writer: int) -> None:
    """Refuse a manifest with a reader feature that this release does not understand."""
    _check(reader, "read")
    lone = (reader ^ writer) & PAIRED
    if lone:
        raise CorruptDataError(
            "a feature must be set for readers and writers alike",
            feature=feature_names(lone),
            reader_flags=reader,
            writer_flags=writer,
        )
    if reader & WRITERS_ONLY:
        raise CorruptDataError(
            "a feature that only writers need is asked of readers",
            feature=feature_names(reader & WRITERS_ONLY),
        )


def check_writable(reader: int, writer: int) -> None:
    """Refuse a manifest with any feature that this release would not keep intact."""
    check_readable(reader, writer)
    _check(writer, "write")


def commit_flags(
    reader: int,
    writer: int,
    *,
    deletion_files: bool,
    config: bool,
    base_paths: bool,
    spilled_lineage: bool,
    data_overlays: bool = False,
) -> tuple[int, int]:
    """Return the words for a new version from those of the version it grows out of.

    What follows from content is set by the content; every other bit is carried on.

    >>> commit_flags(1, 1, deletion_files=False, config=True, base_paths=False,
    ...              spilled_lineage=False)
    (0, 8)
    """
    both = (
        deletion_files * Feature.DELETION_FILES
        | base_paths * Feature.BASE_PATHS
        | spilled_lineage * Feature.SPILLED_ROW_LINEAGE
        | data_overlays * Feature.DATA_OVERLAYS
    )
    own = config * Feature.TABLE_CONFIG
    return reader & ~DERIVED | both, writer & ~DERIVED | both | own


def feature_names(flags: int) -> list[str]:
    """Return the names of the bits, or their numbers where they have none.

    >>> feature_names(1 | 1 << 20)
    ['DELETION_FILES', '1048576']
    """
    bits = [1 << place for place in range(flags.bit_length()) if flags >> place & 1]
    known = {feature.value: feature.name for feature in Feature}
    return [known.get(bit) or str(bit) for bit in bits]


def _check(flags: int, verb: str) -> None:
    strange = flags & ~UNDERSTOOD
    if strange:
        raise UnsupportedError(
            f"a newer release is needed to {verb} this version of the table",
            features=feature_names(strange),
        )

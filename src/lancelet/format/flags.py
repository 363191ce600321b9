"""Feature flags: the features that readers and writers of a version must support.

A manifest has one bit set for readers and one for writers. An unsupported reader bit forbids
reading. An unsupported writer bit forbids every change: commits, cleanup, and branches, tags or
clones of the version. Some features require both bits, and a manifest with only one of them is
corrupt.

    reader 1, writer 1 | 8    deletion files, and a config that writers must preserve
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lancelet.errors import CorruptDataError, UnsupportedError


class Feature(IntEnum):
    """The bits of the reader and writer flags."""

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


SUPPORTED: Final = (
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
"""Features that this release reads, and preserves when it writes."""

PAIRED: Final = (
    Feature.MIXED_FILE_VERSIONS
    | Feature.TAGGED_FRAGMENT_REUSE
    | Feature.MANAGED_BLOBS
    | Feature.ZONE_WRITE_SEED
)
"""Features that are set for both readers and writers, or for neither."""

WRITERS_ONLY: Final = Feature.NON_REUSABLE_FIELD_IDS
"""Features that only writers need to support; setting them for readers is an error."""

DERIVED: Final = (
    Feature.DELETION_FILES
    | Feature.TABLE_CONFIG
    | Feature.BASE_PATHS
    | Feature.DATA_OVERLAYS
    | Feature.SPILLED_ROW_LINEAGE
)
"""Features that follow from the content of a version, so every commit recomputes them."""


def check_readable(reader: int, writer: int) -> None:
    """Raise if a manifest requires a reader feature that this release does not support."""
    _check(reader, "read")
    lone = (reader ^ writer) & PAIRED
    if lone:
        raise CorruptDataError(
            "a feature flag must be set for both readers and writers",
            feature=feature_names(lone),
            reader_flags=reader,
            writer_flags=writer,
        )
    if reader & WRITERS_ONLY:
        raise CorruptDataError(
            "a writer-only feature flag is set for readers",
            feature=feature_names(reader & WRITERS_ONLY),
        )


def check_writable(reader: int, writer: int) -> None:
    """Raise if a manifest requires a feature that this release would not preserve."""
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
    """Return the reader and writer flags of a new version, given those of its parent.

    Flags that follow from the content are recomputed; all other bits are inherited.

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
    writer_only = config * Feature.TABLE_CONFIG
    return reader & ~DERIVED | both, writer & ~DERIVED | both | writer_only


def feature_names(flags: int) -> list[str]:
    """Return the names of the bits, or their values for bits without a name.

    >>> feature_names(1 | 1 << 20)
    ['DELETION_FILES', '1048576']
    """
    bits = [1 << shift for shift in range(flags.bit_length()) if flags >> shift & 1]
    names = {feature.value: feature.name for feature in Feature}
    return [names.get(bit) or str(bit) for bit in bits]


def _check(flags: int, verb: str) -> None:
    unsupported = flags & ~SUPPORTED
    if unsupported:
        raise UnsupportedError(
            f"a newer release is needed to {verb} this version of the table",
            features=feature_names(unsupported),
        )

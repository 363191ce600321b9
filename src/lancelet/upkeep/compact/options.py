"""Compaction options, with the names and defaults of pylance.

The value of an option is the first of:

    the argument                   target_rows_per_fragment=500_000
    the config of the table        lance.compaction.target_rows_per_fragment = "500000"
    the default                    1024 * 1024
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from enum import Enum
from typing import Any, Final

from lancelet.arguments import OutOfRangeError
from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

CONFIG_PREFIX: Final = "lance.compaction."


class CompactionMode(Enum):
    """The method for copying rows to new files."""

    REENCODE = "reencode"
    """Decode and encode all rows."""

    TRY_BINARY_COPY = "try_binary_copy"
    """Copy encoded pages if possible, otherwise reencode."""

    FORCE_BINARY_COPY = "force_binary_copy"
    """Copy encoded pages, or raise if that is not possible."""


class SourceLimitError(InvalidInputError, OSError):
    """A limit of 0 excludes all fragments."""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The options for selecting and rewriting fragments.

    Attributes:
        target_rows_per_fragment: The target size; smaller fragments are merged.
        max_rows_per_group: The rows per row group in files of version 0.1.
        max_bytes_per_file: The maximum size of a new file in bytes.
        materialize_deletions: Whether fragments are rewritten to remove deleted rows.
        materialize_deletions_threshold: The minimum fraction of deleted rows for that.
        num_threads: The number of concurrent tasks; by default the number of cores.
        batch_size: The rows per read; chosen automatically by default.
        io_buffer_size: Ignored, since prefetching has its own limit.
        defer_index_remap: Whether to record row moves instead of remapping indices.
        compaction_mode: The copy method; by default copies pages if they are large.
        binary_copy_read_batch_bytes: The bytes per read when pages are copied.
        max_source_fragments: The maximum number of fragments to replace.
        max_source_rows: The maximum number of live rows to rewrite.
        max_source_bytes: The maximum bytes of data files to read.
        excluded_fragment_ids: Fragments to exclude; tasks do not merge across them.
        max_overlays_per_fragment: The number of overlays above which a fragment is rewritten.
        data_storage_version: The version of new files; by default that of the table.
    """

    target_rows_per_fragment: int = 1024 * 1024
    max_rows_per_group: int = 1024
    max_bytes_per_file: int | None = None
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    num_threads: int | None = None
    batch_size: int | None = None
    io_buffer_size: int | None = None
    defer_index_remap: bool = False
    compaction_mode: CompactionMode | None = None
    binary_copy_read_batch_bytes: int = 16 * 1024 * 1024
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = ()
    max_overlays_per_fragment: int = 10
    data_storage_version: str | None = None

    def __post_init__(self) -> None:
        """Raise for invalid limits."""
        if self.target_rows_per_fragment < 0:
            raise OutOfRangeError(
                "target_rows_per_fragment must not be negative",
                found=self.target_rows_per_fragment,
            )
        for name in ("max_source_fragments", "max_source_rows", "max_source_bytes"):
            if getattr(self, name) == 0:
                raise SourceLimitError(
                    f"CompactionOptions::{name} must be greater than 0 (use None for no limit)"
                )

    @staticmethod
    def parse(
        arguments: Mapping[str, Any], config: Mapping[str, str] | None = None
    ) -> CompactionOptions:
        """Return the options from arguments, completed by the config of a table.

        >>> CompactionOptions.parse({"batch_size": 7}).batch_size
        7
        """
        supported = {field.name for field in fields(CompactionOptions)}
        unknown = sorted(set(arguments) - supported)
        if unknown:
            raise InvalidInputError(
                f"Invalid compaction option: {unknown[0]}", expected=sorted(supported)
            )
        configured = {
            key.removeprefix(CONFIG_PREFIX): _parse_text(key, value)
            for key, value in (config or {}).items()
            if key.removeprefix(CONFIG_PREFIX) in _PARSERS and key.startswith(CONFIG_PREFIX)
        }
        explicit = {key: value for key, value in arguments.items() if value is not None}
        options = CompactionOptions(**(configured | explicit))
        return replace(
            options,
            compaction_mode=_parse_mode(options.compaction_mode),
            excluded_fragment_ids=tuple(sorted(set(options.excluded_fragment_ids))),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON values, compatible with the reference."""
        mode = self.compaction_mode
        return asdict(self) | {
            "index_remap_mode": "Direct",
            "enable_binary_copy": mode not in {None, CompactionMode.REENCODE},
            "enable_binary_copy_force": mode is CompactionMode.FORCE_BINARY_COPY,
            "compaction_mode": None if mode is None else mode.value,
            "excluded_fragment_ids": list(self.excluded_fragment_ids),
        }

    @staticmethod
    def from_json(form: Mapping[str, Any]) -> CompactionOptions:
        """Parse options from JSON values, ignoring unknown keys."""
        supported = {field.name for field in fields(CompactionOptions)}
        return CompactionOptions.parse({key: form[key] for key in supported if key in form})


def _parse_mode(mode: CompactionMode | str | None) -> CompactionMode | None:
    if mode is None or isinstance(mode, CompactionMode):
        return mode
    try:
        return CompactionMode(mode)
    except ValueError:
        modes = [member.value for member in CompactionMode]
        raise InvalidInputError(f'Invalid compaction mode "{mode}"', expected=modes) from None


def _parse_text(key: str, text: str) -> Any:
    try:
        return _PARSERS[key.removeprefix(CONFIG_PREFIX)](text)
    except ValueError as error:
        raise InvalidInputError(
            "invalid compaction setting in the config of the table",
            key=key,
            value=text,
        ) from error


def _parse_bool(text: str) -> bool:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise ValueError(text)


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "target_rows_per_fragment": int,
    "max_rows_per_group": int,
    "max_bytes_per_file": int,
    "materialize_deletions": _parse_bool,
    "materialize_deletions_threshold": float,
    "defer_index_remap": _parse_bool,
    "batch_size": int,
    "compaction_mode": str,
    "binary_copy_read_batch_bytes": int,
    "max_source_fragments": int,
    "max_source_rows": int,
    "max_source_bytes": int,
    "data_storage_version": str,
}
"""The settings supported in the config of a table, with the parsers of their values."""

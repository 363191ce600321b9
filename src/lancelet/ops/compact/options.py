"""What a caller may wish of a compaction, under the names that pylance gives the wishes.

    given to the call                        target_rows_per_fragment=500_000
    else in the config of the table          lance.compaction.target_rows_per_fragment = "500000"
    else                                     1024 * 1024

The defaults are those of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from enum import Enum
from typing import Any, Final

from lancelet.errors import InvalidInputError
from lancelet.file.arguments import OutOfRangeError
from lancelet.values import dataclass

CONFIG_PREFIX: Final = "lance.compaction."


class CompactionMode(Enum):
    """How rows get from old files into new ones."""

    REENCODE = "reencode"
    """Decoded and encoded again."""

    TRY_BINARY_COPY = "try_binary_copy"
    """Page by page as they are, where all pages can be taken over; else encoded again."""

    FORCE_BINARY_COPY = "force_binary_copy"
    """Page by page, or not at all."""


class SourceLimitError(InvalidInputError, OSError):
    """A limit under which nothing can be compacted."""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """How fragments are chosen and rewritten.

    Attributes:
        target_rows_per_fragment: Fragments with fewer rows are joined, larger ones are cut.
        max_rows_per_group: The rows of a batch in files of version 0.1.
        max_bytes_per_file: Where files are cut however few rows they have.
        materialize_deletions: Whether fragments are rewritten to get rid of deleted rows.
        materialize_deletions_threshold: The share of deleted rows from which that is worth it.
        num_threads: How many tasks run at a time; by default as many as there are cores.
        batch_size: The rows read at a time; by default what is cheapest.
        io_buffer_size: Has no effect: reading ahead is bounded by itself.
        defer_index_remap: Whether indices are left as they are, with a note of where rows went.
        compaction_mode: How rows are copied; by default page by page where pages are large.
        binary_copy_read_batch_bytes: How many bytes are copied at a time.
        max_source_fragments: The most fragments that one run replaces.
        max_source_rows: The most live rows that one run rewrites.
        max_source_bytes: The most bytes of data files that one run reads.
        excluded_fragment_ids: Fragments that stay, and are not reached over either.
        max_overlays_per_fragment: From how many overlays on a fragment is rewritten for them.
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
        """Refuse limits under which nothing can be done."""
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
        wishes: Mapping[str, Any], config: Mapping[str, str] | None = None
    ) -> CompactionOptions:
        """Return the options of a caller's wishes, and of a table's config where they are silent.

        >>> CompactionOptions.parse({"batch_size": 7}).batch_size
        7
        """
        known = {field.name for field in fields(CompactionOptions)}
        unknown = sorted(set(wishes) - known)
        if unknown:
            raise InvalidInputError(f"Invalid compaction option: {unknown[0]}", known=sorted(known))
        configured = {
            key.removeprefix(CONFIG_PREFIX): _parse_text(key, value)
            for key, value in (config or {}).items()
            if key.removeprefix(CONFIG_PREFIX) in _PARSERS and key.startswith(CONFIG_PREFIX)
        }
        given = {key: value for key, value in wishes.items() if value is not None}
        options = CompactionOptions(**(configured | given))
        return replace(
            options,
            compaction_mode=_mode_of(options.compaction_mode),
            excluded_fragment_ids=tuple(sorted(set(options.excluded_fragment_ids))),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options as values of JSON, so that the reference takes them too."""
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
        """Return the options of values of JSON; those of other writers are left out."""
        known = {field.name for field in fields(CompactionOptions)}
        return CompactionOptions.parse({key: form[key] for key in known if key in form})


def _mode_of(mode: CompactionMode | str | None) -> CompactionMode | None:
    if mode is None or isinstance(mode, CompactionMode):
        return mode
    try:
        return CompactionMode(mode)
    except ValueError:
        known = [each.value for each in CompactionMode]
        raise InvalidInputError(f'Invalid compaction mode "{mode}"', known=known) from None


def _parse_text(key: str, text: str) -> Any:
    try:
        return _PARSERS[key.removeprefix(CONFIG_PREFIX)](text)
    except ValueError as error:
        raise InvalidInputError(
            "a setting of compaction in the config of the table cannot be understood",
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
"""What may be set in the config of a table, and how its text is read."""

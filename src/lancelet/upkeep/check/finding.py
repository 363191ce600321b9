"""The findings of a check: the affected file, the problem and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass


class Level(IntEnum):
    """The depth of a check; each level includes the previous ones."""

    PRESENT = 1
    """All referenced files exist and have the expected size."""

    FOOTERS = 2
    """All files can be opened and match the manifest in rows and fields."""

    CHECKSUMS = 3
    """All bytes with checksums are verified."""

    DECODE = 4
    """All values can be decoded."""

    INDICES = 5
    """Index coverage, index entries and row ids match the rows."""

    @staticmethod
    def parse(level: str | int | Level) -> Level:
        """Return the level with a name or number.

        >>> Level.parse("decode")
        <Level.DECODE: 4>
        """
        try:
            return Level[level.upper()] if isinstance(level, str) else Level(level)
        except (KeyError, ValueError):
            names = [level_.name.lower() for level_ in Level]
            raise InvalidInputError("unknown check level", level=level, expected=names) from None


class Severity(Enum):
    """The severity of a finding."""

    ERROR = "error"
    """Rows cannot be read, or their values are wrong."""

    WARNING = "warning"
    """All rows can be read, but metadata is inconsistent."""

    NOTE = "note"
    """Something could not be checked."""


@dataclass(slots=True)
class Coverage:
    """The extent of a check; files without checksums are not fully verified.

    Attributes:
        level: The level of the check.
        files: The number of checked data files.
        verified_files: The number of data files with verified checksums.
        files_without_checksums: The number of data files by writers without checksums.
    """

    level: Level
    files: int = 0
    verified_files: int = 0
    files_without_checksums: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether the checksums of all data files were verified."""
        return self.verified_files == self.files

    def add(self, other: Coverage) -> None:
        """Add the coverage of another check."""
        self.files += other.files
        self.verified_files += other.verified_files
        self.files_without_checksums += other.files_without_checksums

    def __str__(self) -> str:
        """Return the coverage as a sentence."""
        if self.level < Level.CHECKSUMS:
            return (
                f"{self.files} files; no bytes were verified at the level {self.level.name.lower()}"
            )
        if not self.files_without_checksums:
            return f"{self.verified_files} of {self.files} files verified by their checksums"
        return (
            f"{self.verified_files} of {self.files} files verified by their checksums; "
            f"{self.files_without_checksums} of {self.files} files have no checksums"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem reported by a check.

    Attributes:
        severity: The severity.
        path: The affected file or object, relative to the root of the table.
        what: The problem.
        advice: The remedy.
        fragment_id: The affected fragment, if any.
        index: The name of the affected index, if any.
    """

    severity: Severity
    path: str
    what: str
    advice: str
    fragment_id: int | None = None
    index: str | None = None

    def __str__(self) -> str:
        """Return the finding as one line of text."""
        return f"{self.severity.value}: {self.path}: {self.what}; {self.advice}"


class Findings(list[Finding]):
    """A list of findings with the `coverage` of the check."""

    def __init__(self, findings: Iterable[Finding], coverage: Coverage) -> None:
        """Initialize the list."""
        super().__init__(findings)
        self.coverage = coverage

    def __reduce__(self) -> tuple[object, ...]:
        return (Findings, (list(self), self.coverage))

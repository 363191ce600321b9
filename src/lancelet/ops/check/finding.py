"""What a check found: values that name a file, say what is wrong with it, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass


class Level(IntEnum):
    """How deep a check goes; each level includes those before it."""

    PRESENT = 1
    """Every file that the version mentions is there, with its size."""

    FOOTERS = 2
    """Every file can be opened and agrees with the manifest about rows and fields."""

    CHECKSUMS = 3
    """Every byte that has a checksum is as it was written."""

    DECODE = 4
    """Every value can be decoded."""

    INDICES = 5
    """What indices cover, counts and ids agree with the rows."""

    @staticmethod
    def parse(level: str | int | Level) -> Level:
        """Return the level of a name or number.

        >>> Level.parse("decode")
        <Level.DECODE: 4>
        """
        try:
            return Level[level.upper()] if isinstance(level, str) else Level(level)
        except (KeyError, ValueError):
            known = [each.name.lower() for each in Level]
            raise InvalidInputError("there is no such level", level=level, known=known) from None


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Rows cannot be read, or would be read wrong."""

    WARNING = "warning"
    """All rows can be read, but something is not as it should be."""

    NOTE = "note"
    """Something could not be checked."""


@dataclass(slots=True)
class Coverage:
    """How much a check looked at: no findings in files without checksums say little.

    Attributes:
        level: How deep the check went.
        files: How many data files it looked at.
        verified_files: In how many of them every byte was compared with its checksum.
        files_without_checksums: How many have none, as other writers leave them.
    """

    level: Level
    files: int = 0
    verified_files: int = 0
    files_without_checksums: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every byte of every data file was compared with a checksum."""
        return self.verified_files == self.files

    def add(self, other: Coverage) -> None:
        """Add what a check of other files looked at."""
        self.files += other.files
        self.verified_files += other.verified_files
        self.files_without_checksums += other.files_without_checksums

    def __str__(self) -> str:
        """Return what was and was not verified, as a sentence."""
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
    """Something that a check found.

    Attributes:
        severity: How bad it is.
        path: The file or the thing it is about, below the root of the table.
        what: What is wrong, with the facts.
        advice: What to do.
        fragment_id: The fragment whose rows it is about, if it is one's.
        index: The name of the index it is about, if it is one's.
    """

    severity: Severity
    path: str
    what: str
    advice: str
    fragment_id: int | None = None
    index: str | None = None

    def __str__(self) -> str:
        """Return the finding as a line."""
        return f"{self.severity.value}: {self.path}: {self.what}; {self.advice}"


class Findings(list[Finding]):
    """What a check found, and as `coverage` how much it looked at."""

    def __init__(self, findings: Iterable[Finding], coverage: Coverage) -> None:
        """Hold findings."""
        super().__init__(findings)
        self.coverage = coverage

    def __reduce__(self) -> tuple[object, ...]:
        return (Findings, (list(self), self.coverage))

"""What a check found: values that name a file, say what is wrong with it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from lancelet.errors import InvalidInputError


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

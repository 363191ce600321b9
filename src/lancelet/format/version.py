"""Versions of the data file, and the names, selectors and numbers they go by.

A manifest says "2.2", a data file's entry says (2, 2), and a footer may say (0, 3) and mean 2.0.
Writers choose by selector: a version, or `stable`, `next` or `legacy`.

    0.1  entry (0, 2)   footer (0, 2)   also (0, 0) and (0, 1), as old tables have it
    2.0  entry (2, 0)   footer (0, 3)   also called 0.3
    2.1  entry (2, 1)   footer (2, 1)   and so on
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from lancelet.errors import InvalidInputError, UnsupportedError


class FileVersion(Enum):
    """A generation of the data file, by the name manifests give it."""

    V0_1 = "0.1"
    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    V2_3 = "2.3"

    @staticmethod
    def parse(selector: str) -> FileVersion:
        """Return the version that a selector means.

        >>> FileVersion.parse("stable"), FileVersion.parse("0.3").value
        (<FileVersion.V2_2: '2.2'>, '2.0')
        """
        found = _SELECTORS.get(selector.lower())
        if found is None:
            raise InvalidInputError(
                "no file version has that name", found=selector, known=sorted(_SELECTORS)
            )
        return found

    @staticmethod
    def from_numbers(major: int, minor: int) -> FileVersion:
        """Return the version that the numbers of a footer or of a manifest entry mean."""
        found = _BY_NUMBERS.get((major, minor))
        if found is None:
            raise UnsupportedError(
                "this release does not know the version of the data file", major=major, minor=minor
            )
        return found

    @property
    def entry_numbers(self) -> tuple[int, int]:
        """The major and minor number in the manifest's entry of a data file."""
        return _ENTRY_NUMBERS[self]

    @property
    def footer_numbers(self) -> tuple[int, int]:
        """The major and minor number in the footer of a data file."""
        return (0, 3) if self is FileVersion.V2_0 else self.entry_numbers

    def __ge__(self, other: FileVersion) -> bool:
        """Order versions by age; names sort as text."""
        return self._value_ >= other._value_

    def __lt__(self, other: FileVersion) -> bool:
        """Order versions by age; names sort as text."""
        return self._value_ < other._value_

    def __gt__(self, other: FileVersion) -> bool:
        """Order versions by age; names sort as text."""
        return self._value_ > other._value_


_ENTRY_NUMBERS: Final = {
    FileVersion.V0_1: (0, 2),
    FileVersion.V2_0: (2, 0),
    FileVersion.V2_1: (2, 1),
    FileVersion.V2_2: (2, 2),
    FileVersion.V2_3: (2, 3),
}

DEFAULT_VERSION: Final = FileVersion.V2_2
"""What `stable` means, and what a new table gets."""

_SELECTORS: Final = {
    **{version.value: version for version in FileVersion},
    "legacy": FileVersion.V0_1,
    "0.3": FileVersion.V2_0,
    "stable": DEFAULT_VERSION,
    "next": FileVersion.V2_3,
}
_BY_NUMBERS: Final = {
    **{version.entry_numbers: version for version in FileVersion},
    **{version.footer_numbers: version for version in FileVersion},
    (0, 0): FileVersion.V0_1,
    (0, 1): FileVersion.V0_1,
}

"""Data file versions, with their names, selectors and numbers.

A manifest stores "2.2", its data file entries (2, 2), and a footer of version 2.0 stores (0, 3).
Writers select a version by name, or as `stable`, `next` or `legacy`.

    0.1  entry (0, 2)   footer (0, 2)   old tables also have (0, 0) and (0, 1)
    2.0  entry (2, 0)   footer (0, 3)   also named 0.3
    2.1  entry (2, 1)   footer (2, 1)   and so on
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from lancelet.errors import InvalidInputError, UnsupportedError


class FileVersion(Enum):
    """A data file version, by its name in manifests."""

    V0_1 = "0.1"
    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    V2_3 = "2.3"

    @staticmethod
    def parse(selector: str) -> FileVersion:
        """Return the version of a selector.

        >>> FileVersion.parse("stable"), FileVersion.parse("0.3").value
        (<FileVersion.V2_2: '2.2'>, '2.0')
        """
        version = _SELECTORS.get(selector.lower())
        if version is None:
            raise InvalidInputError(
                "unknown file version", found=selector, supported=sorted(_SELECTORS)
            )
        return version

    @staticmethod
    def from_numbers(major: int, minor: int) -> FileVersion:
        """Return the version with the given footer or manifest entry numbers."""
        version = _BY_NUMBERS.get((major, minor))
        if version is None:
            raise UnsupportedError("unsupported version of the data file", major=major, minor=minor)
        return version

    @property
    def entry_numbers(self) -> tuple[int, int]:
        """The major and minor number in a manifest entry."""
        return _ENTRY_NUMBERS[self]

    @property
    def footer_numbers(self) -> tuple[int, int]:
        """The major and minor number in a data file footer."""
        return (0, 3) if self is FileVersion.V2_0 else self.entry_numbers

    def __ge__(self, other: FileVersion) -> bool:
        """Order versions by age; their names sort in that order."""
        return self._value_ >= other._value_

    def __lt__(self, other: FileVersion) -> bool:
        """Order versions by age; their names sort in that order."""
        return self._value_ < other._value_

    def __gt__(self, other: FileVersion) -> bool:
        """Order versions by age; their names sort in that order."""
        return self._value_ > other._value_


_ENTRY_NUMBERS: Final = {
    FileVersion.V0_1: (0, 2),
    FileVersion.V2_0: (2, 0),
    FileVersion.V2_1: (2, 1),
    FileVersion.V2_2: (2, 2),
    FileVersion.V2_3: (2, 3),
}

DEFAULT_VERSION: Final = FileVersion.V2_2
"""The version that `stable` selects, and the default of new tables."""

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

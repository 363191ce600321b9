"""How far a sequence of commits has come, kept in the table's config by the commits themselves.

    config of version 7     lancelet.stream.ab12 = 41
    batch 42 commits        version 8 has its rows, and lancelet.stream.ab12 = 42
    batch 42 again          42 is reached: nothing is published

The number and the rows are one version, so whoever repeats a batch after a crash, however late,
finds it done. Other writers carry the config along without knowing what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

PREFIX: Final = "lancelet.stream."


@dataclass(frozen=True, slots=True)
class Mark:
    """The number of a batch within a sequence, which a table takes once and in order."""

    sequence: str
    number: int

    @property
    def key(self) -> str:
        """The key of the config that holds the number."""
        return PREFIX + self.sequence

    def is_reached(self, config: Mapping[str, str]) -> bool:
        """Say whether a table has this batch already.

        >>> Mark("s", 4).is_reached({"lancelet.stream.s": "4"})
        True
        """
        text = config.get(self.key)
        if text is None:
            return False
        try:
            return int(text) >= self.number
        except ValueError:
            raise CorruptDataError(
                "the config lacks the position of the sequence", key=self.key, found=text
            ) from None

    def put(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the config of a table that has this batch."""
        return {**config, self.key: str(self.number)}

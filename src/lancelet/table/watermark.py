"""Batch numbers of exactly-once streams, recorded in the table config by each commit.

    config of version 7     lancelet.stream.ab12 = 41
    batch 42 commits        version 8 has its rows, and lancelet.stream.ab12 = 42
    batch 42 again          42 is recorded: nothing is published

The batch number and the rows are committed in one version, so a batch that is repeated after a
crash is skipped. Other writers preserve the config entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lancelet.errors import CommitConflictError, CorruptDataError
from lancelet.values import dataclass

PREFIX: Final = "lancelet.stream."


@dataclass(frozen=True, slots=True)
class BatchWatermark:
    """A batch number within a sequence; batches are committed once and in order."""

    sequence: str
    number: int
    after: int | None = None
    """The number that the table must contain, or None to accept any smaller one."""
    entries: tuple[tuple[str, str], ...] = ()
    """Other entries to put into the table config."""

    @property
    def key(self) -> str:
        """The config key of the batch number."""
        return PREFIX + self.sequence

    def is_reached(self, config: Mapping[str, str]) -> bool:
        """Return whether the table already contains this batch.

        >>> BatchWatermark("s", 4).is_reached({"lancelet.stream.s": "4"})
        True
        """
        if self.after is not None:
            return False
        found = self._recorded(config)
        return found is not None and found >= self.number

    def check(self, config: Mapping[str, str], *, uri: str) -> None:
        """Raise if the table does not contain the number that the batch follows."""
        if self.after is not None and self._recorded(config) != self.after:
            raise CommitConflictError(
                "another writer committed a batch of the same sequence; repeat the operation",
                uri=uri,
                sequence=self.sequence,
                expected=self.after,
                found=config.get(self.key),
            )

    def put(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the table config updated with this batch."""
        return {**config, **dict(self.entries), self.key: str(self.number)}

    def _recorded(self, config: Mapping[str, str]) -> int | None:
        text = config.get(self.key)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise CorruptDataError(
                "the batch number of the sequence in the table config is not an integer",
                key=self.key,
                found=text,
            ) from None

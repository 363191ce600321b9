"""What the process asked of storage, since it started."""

from __future__ import annotations

from lancelet.io.metered import PROCESS_METER


def iops_counter() -> int:
    """Return how many reads there were."""
    return PROCESS_METER.counts.read_iops


def bytes_read_counter() -> int:
    """Return how many bytes were read."""
    return PROCESS_METER.counts.read_bytes

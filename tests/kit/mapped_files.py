"""How much of a file is in the memory of this process, by the maps that it has of it."""

from __future__ import annotations

import re
from pathlib import Path


def resident_bytes(path: Path) -> int:
    """Return how many bytes of a file this process has in memory, of all its maps of it."""
    maps = Path("/proc/self/smaps").read_text(encoding="utf-8")
    found = re.findall(rf" {re.escape(str(path))}\n(?:.*\n)*?Rss:\s+(\d+) kB", maps)
    return 1024 * sum(map(int, found))

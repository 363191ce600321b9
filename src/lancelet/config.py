"""Process-wide settings: how wide to work and how much memory to keep.

Every setting has a value that needs no tuning; the environment variables are for the day one
does. They are read once, at import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lancelet.errors import InvalidInputError

_MIB: Final = 1 << 20


def available_cpus() -> int:
    """Return how many processors this process may use, by its affinity where there is one."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def machine_memory_bytes() -> int | None:
    """Return how much memory the machine has, or None if it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def threads_wanted() -> int:
    """Return how many threads compute: as many as `OMP_NUM_THREADS` says, or one a processor.

    Arrow takes the same advice. Spark gives it to its workers of Python, where it is the number
    of processors that a task was given; other tasks have the others.
    """
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() and int(text) > 0 else available_cpus()


def available_memory_bytes() -> int:
    """Return the memory this process may use: the container's limit, or the machine's memory."""
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 4096 * _MIB


def _environment_int(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    if not text.isdigit():
        raise InvalidInputError(
            "an environment variable of lancelet must be an integer", name=name, found=text
        )
    return int(text)


CPU_THREADS: Final = _environment_int("LANCELET_CPU_THREADS", threads_wanted())
IO_THREADS: Final = _environment_int("LANCELET_IO_THREADS", 64)
CACHE_BYTES: Final = _environment_int(
    "LANCELET_CACHE_BYTES", min(4096 * _MIB, available_memory_bytes() // 8)
)
MEMORY_LIMIT_BYTES: Final = _environment_int(
    "LANCELET_MEMORY_LIMIT_BYTES", available_memory_bytes() // 4
)

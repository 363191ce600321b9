"""Process-wide settings: parallelism and cache sizes.

The defaults need no tuning. Environment variables override them and are read once, at import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lancelet.errors import InvalidInputError

_MIB: Final = 1 << 20


def available_cpus() -> int:
    """Return the number of processors available to this process, considering its CPU affinity."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def machine_memory_bytes() -> int | None:
    """Return the physical memory in bytes, or None if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def default_num_threads() -> int:
    """Return the number of compute threads: `OMP_NUM_THREADS`, or one per available processor.

    Arrow uses the same variable. Spark sets it for Python workers to the number of processors of
    the task, so concurrent tasks do not oversubscribe the machine.
    """
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() and int(text) > 0 else available_cpus()


def available_memory_bytes() -> int:
    """Return the memory available to this process: the container limit or the physical memory."""
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


CPU_THREADS: Final = _environment_int("LANCELET_CPU_THREADS", default_num_threads())
IO_THREADS: Final = _environment_int("LANCELET_IO_THREADS", 64)
CACHE_BYTES: Final = _environment_int(
    "LANCELET_CACHE_BYTES", min(4096 * _MIB, available_memory_bytes() // 8)
)
MEMORY_LIMIT_BYTES: Final = _environment_int(
    "LANCELET_MEMORY_LIMIT_BYTES", available_memory_bytes() // 4
)

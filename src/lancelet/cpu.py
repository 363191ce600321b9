"""Instruction sets of the processor, in the form of pylance.

{"tier": "avx2", "target_arch": "x86_64", "host_features": ["sse2", ..., "avx2", "fma"]}
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Final

_CPU_FILE: Final = Path("/proc/cpuinfo")
_X86: Final = frozenset({"x86_64", "amd64"})
_FEATURES: Final = (
    ("sse2", "sse2"),
    ("sse3", "pni"),
    ("ssse3", "ssse3"),
    ("sse4.1", "sse4_1"),
    ("sse4.2", "sse4_2"),
    ("popcnt", "popcnt"),
    ("avx", "avx"),
    ("avx2", "avx2"),
    ("fma", "fma"),
    ("f16c", "f16c"),
    ("bmi1", "bmi1"),
    ("bmi2", "bmi2"),
    ("avx512f", "avx512f"),
    ("avx512bw", "avx512bw"),
    ("avx512cd", "avx512cd"),
    ("avx512dq", "avx512dq"),
    ("avx512vl", "avx512vl"),
    ("avx512fp16", "avx512_fp16"),
)
"""Maps the names of pylance to those of the operating system."""

_TIERS: Final = (
    ("avx512_fp16", {"avx512f", "avx512bw", "avx512fp16"}),
    ("avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("avx2", {"avx2", "fma"}),
    ("avx_fma", {"avx", "fma"}),
    ("avx", {"avx"}),
    ("sse", {"sse4.2"}),
)
_OTHER_TIERS: Final = {"aarch64": "neon", "arm64": "neon", "loongarch64": "lasx"}


def simd_info() -> dict[str, Any]:
    """Return the widest instruction set, the architecture, and all CPU features."""
    machine = platform.machine().lower()
    if machine not in _X86:
        tier = _OTHER_TIERS.get(machine, "none")
        return {"tier": tier, "target_arch": machine, "host_features": []}
    features = _x86_features()
    tier = next((name for name, needed in _TIERS if needed.issubset(features)), "none")
    return {"tier": tier, "target_arch": "x86_64", "host_features": features}


def _x86_features() -> list[str]:
    try:
        lines = _CPU_FILE.read_text().splitlines()
    except OSError:
        return ["sse2"]  # the baseline of x86-64
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), {"sse2"})
    return [name for name, flag in _FEATURES if flag in flags]

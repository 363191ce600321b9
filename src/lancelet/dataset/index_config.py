"""What callers say of indices beyond a name: kinds with parameters, and names of pylance's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass
class IndexConfig:
    """A kind of index with its parameters: `IndexConfig("zonemap", {"rows_per_zone": 1000})`."""

    index_type: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class IndexFileVersion(StrEnum):
    """The generations of files of vector indices."""

    LEGACY = "Legacy"
    V3 = "V3"


class SupportedDistributedIndices(StrEnum):
    """The kinds of index that can be built in parts."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_SQ = "IVF_SQ"
    VECTOR = "VECTOR"

"""Every kind of scalar index there is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lancelet.errors import UnsupportedError
from lancelet.index.base import ScalarKind
from lancelet.index.inverted import Inverted
from lancelet.index.inverted.layout import METADATA
from lancelet.index.scalar.bitmap import Bitmap
from lancelet.index.scalar.bloomfilter import BloomFilter
from lancelet.index.scalar.btree import BTree
from lancelet.index.scalar.json_path import JsonPath
from lancelet.index.scalar.label_list import LabelList
from lancelet.index.scalar.minhash import MinHash
from lancelet.index.scalar.ngram import NGram
from lancelet.index.scalar.zonemap import ZoneMap
from lancelet.index.vector.kind import IVF

SCALAR_KINDS: Final[tuple[ScalarKind, ...]] = (
    BTree(),
    Bitmap(),
    LabelList(),
    ZoneMap(),
    BloomFilter(),
    NGram(),
    MinHash(),
    JsonPath((BTree(), Bitmap(), ZoneMap(), NGram())),
    Inverted(),
)
_ALIASES: Final = {"FTS": "INVERTED"}
_BY_FILE: Final = {METADATA: "INVERTED"}
"""A file that no other kind has."""

_BY_NAME: Final = {kind.name: kind for kind in SCALAR_KINDS}
_BY_TYPE: Final = {kind.type_url.lower(): kind for kind in (*SCALAR_KINDS, IVF)}
assert len(_BY_NAME) == len(_BY_TYPE) - 1 == len(SCALAR_KINDS), "two kinds claim one name"


def kind_of_name(name: str) -> ScalarKind:
    """Return the kind that callers mean.

    >>> kind_of_name("btree").title
    'BTree'
    """
    kind = _BY_NAME.get(_ALIASES.get(name.upper(), name.upper()))
    if kind is None:
        raise UnsupportedError("no index is of that kind", found=name, known=sorted(_BY_NAME))
    return kind


def kind_of_type(type_url: str) -> ScalarKind | None:
    """Return the kind of details, or None if it is unknown; upper and lower case are one."""
    return _BY_TYPE.get(type_url.lower())


def kind_of_files(names: Collection[str]) -> ScalarKind | None:
    """Return the kind that has files of these names, or None if it cannot be told.

    >>> kind_of_files(["metadata.lance", "part_0_docs.lance"]).title
    'Inverted'
    """
    return next((kind_of_name(kind) for file, kind in _BY_FILE.items() if file in names), None)

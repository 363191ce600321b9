"""Registry of the index kinds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa

from lancelet.errors import UnsupportedError, similar_names
from lancelet.index.base import AnyKind
from lancelet.index.inverted.kind import Inverted
from lancelet.index.inverted.layout import METADATA
from lancelet.index.parts.key_sets import KEY_SETS
from lancelet.index.scalar.bitmap.kind import Bitmap
from lancelet.index.scalar.bloomfilter.kind import BloomFilter
from lancelet.index.scalar.btree.kind import BTree
from lancelet.index.scalar.btree.layout import PAGE_LOOKUP
from lancelet.index.scalar.fm.kind import Fm
from lancelet.index.scalar.json_path.kind import JsonPath
from lancelet.index.scalar.label_list.kind import LabelList
from lancelet.index.scalar.minhash.kind import MinHash
from lancelet.index.scalar.ngram.kind import NGram
from lancelet.index.scalar.rtree.kind import RTree
from lancelet.index.scalar.zonemap.kind import ZoneMap
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.layout import INDEX_FILE

SCALAR_KINDS: Final[tuple[AnyKind, ...]] = (
    BTree(),
    Bitmap(),
    LabelList(),
    ZoneMap(),
    BloomFilter(),
    NGram(),
    Fm(),
    MinHash(),
    RTree(),
    JsonPath((BTree(), Bitmap(), ZoneMap(), NGram())),
    Inverted(),
)
_ALIASES: Final = {"FTS": "INVERTED"}
_BY_FILE: Final = {
    METADATA: ("INVERTED",),
    PAGE_LOOKUP: ("BTREE",),
    KEY_SETS: ("BITMAP", "LABEL_LIST"),
    INDEX_FILE: ("IVF",),
}
"""Kinds by the file that identifies them, for releases that wrote no index details."""

_BY_NAME: Final = {kind.name: kind for kind in SCALAR_KINDS}


def _base_name(type_url: str) -> str:
    """Return the last component of a type name; its package differs between releases."""
    return type_url.rpartition("/")[2].rpartition(".")[2].lower()


_BY_TYPE: Final = {_base_name(kind.type_url): kind for kind in (*SCALAR_KINDS, IVF)}
assert len(_BY_NAME) == len(_BY_TYPE) - 1 == len(SCALAR_KINDS), "two index kinds have the same name"


def kind_by_name(name: str) -> AnyKind:
    """Return the kind with a name or alias, in any case.

    >>> kind_by_name("btree").title
    'BTree'
    """
    kind = _BY_NAME.get(_ALIASES.get(name.upper(), name.upper()))
    if kind is None:
        hint = similar_names(name, sorted(_BY_NAME))
        raise UnsupportedError(f"unknown index type{hint}", found=name, expected=sorted(_BY_NAME))
    return kind


def kind_by_details_type(type_url: str) -> AnyKind | None:
    """Return the kind for a details type, in any case, or None if it is unknown.

    >>> kind_by_details_type("/lance.table.VectorIndexDetails") is IVF
    True
    """
    return _BY_TYPE.get(_base_name(type_url))


def kind_by_files(names: Collection[str], data_type: pa.DataType) -> AnyKind | None:
    """Return the kind identified by its file names and column type, or None if it is unknown.

    >>> kind_by_files(["bitmap_page_lookup.lance"], pa.list_(pa.string())).title
    'LabelList'
    """
    names_by_file = (kind for file in _BY_FILE if file in names for kind in _BY_FILE[file])
    kinds = (IVF if kind == IVF.name else kind_by_name(kind) for kind in names_by_file)
    return next((kind for kind in kinds if kind.supports_type(kind.indexed_type(data_type))), None)

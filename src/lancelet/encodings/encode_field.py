"""From a field's array to the pages of its columns, for every generation that has levels.

    array  --shred-->  leaf per column  --encode_leaf-->  page bodies  --seal-->  EncodedPages

A generation says how the body of a page becomes its message (`Seal`), and does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.arrow import (
    NUMBER_BITS,
    has_fixed_width,
    has_no_bytes,
    is_variable,
    value_bytes,
    value_bytes_of_each,
)
from lancelet.encodings.base import BlobSink, ColumnChoice, EncodedPages, FileVersion
from lancelet.encodings.blob_v1 import is_blob_v1
from lancelet.encodings.blob_v2 import with_placed_blobs
from lancelet.encodings.codecs.words import WORDS
from lancelet.encodings.encode_leaf import encode_leaf
from lancelet.encodings.layout import (
    ConstantLayout,
    FullZipLayout,
    MiniBlockLayout,
    PageBody,
)
from lancelet.encodings.levels import (
    FixedListNode,
    LeafNode,
    ListNode,
    Node,
    Path,
    ShreddedLeaf,
    nest,
    paths,
    plain_layers,
    rows_multiple,
    shred,
    shred_alike,
)
from lancelet.encodings.miniblock.small import Small, encode_small, small_page
from lancelet.encodings.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.errors import InternalError, UnsupportedError
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.values import dataclass

Seal: TypeAlias = Callable[[Path, PageBody], tuple[bytes, tuple[Slices, ...]]]
"""Makes the message of pages, in its envelope, and the buffers that belong to them."""

_FIELDS_KEPT: Final = 4096
"""Of so many fields it is kept how they are stored."""

_TEXTS: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
_PLAIN_TYPES: Final = frozenset([*NUMBER_BITS, *(data_type.id for data_type in _TEXTS)])

_LAYOUT_NAMES: Final = {
    MiniBlockLayout: "mini-block",
    FullZipLayout: "full-zip",
    ConstantLayout: "constant",
}


@dataclass(frozen=True, slots=True, eq=False)
class ColumnLeaf:
    """What one column of a field is to hold."""

    column: int
    path: Path
    leaf: ShreddedLeaf

    @property
    def is_blob_v1(self) -> bool:
        """Whether the values go to the data file itself, as before 2.2."""
        return is_blob_v1(self.leaf.field)


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the fields within `field` that own a column each, in order: its leaves."""
    return tuple(path[-1].field for path in paths(nest(field, version)))


def check_storable(field: Field, version: FileVersion) -> None:
    """Raise `UnsupportedError` unless files of a version can store a field of this type."""
    leaf_paths = tuple(paths(nest(field, version)))
    _check_empty_structs(leaf_paths)
    for path in leaf_paths:
        _check_nesting(path)
        _check_leaf(path, path[-1].data_type)
        _check_packed(path, version)


def column_leaves(array: pa.Array, field: Field, version: FileVersion) -> Iterator[ColumnLeaf]:
    """Yield what the columns of a field are to hold, after checking that they can."""
    node, leaf_paths = _checked(field, version)
    if len(array):
        for column, leaf in enumerate(shred(node, array)):
            yield ColumnLeaf(column, leaf_paths[column], leaf)


def plain_kind(field: Field) -> str | None:
    """Return what kind of numbers or strings a field has, or None for whatever has more to it.

    Fields of one kind are encoded at once. Numbers are of one kind if they have as many bits.
    """
    return None if field.children or field.metadata else _kind_of_type(field.logical_type)


def encode_plain(
    arrays: Sequence[pa.Array],
    fields: Sequence[Field],
    version: FileVersion,
    options: EncodingOptions,
    seal: Seal,
) -> Iterator[EncodedPages]:
    """Yield pages of the values of plain fields, as many of each."""
    left = dict.fromkeys(range(len(arrays)))
    if options == PLAIN_OPTIONS:
        pages = (
            (place, small_page(array, plain_layers(array))) for place, array in enumerate(arrays)
        )
        small = {place: page for place, page in pages if page is not None}
        path = (LeafNode(fields[0], arrays[0].type),)
        leaf = ShreddedLeaf(fields[0], plain_layers(arrays[0]), None, None, arrays[0])
        column = ColumnLeaf(0, path, leaf)
        names = [field.name for field in fields]
        for encoded in _encode_small(small, names, column, version, seal):
            yield encoded
            for place in encoded.fields:
                del left[place]
    kinds: dict[str | None, list[int]] = {}
    for place in left:
        kinds.setdefault(plain_kind(fields[place]), []).append(place)
    for own in kinds.values():
        alike = [arrays[place] for place in own]
        for within, leaf in shred_alike(fields[own[0]], alike):
            places = [own[place] for place in within]
            path = (LeafNode(fields[own[0]], leaf.values.type),)
            names = [fields[place].name for place in places]
            report = _Reported(names, value_bytes_of_each(leaf.values, len(places)))
            for page in encode_leaf(leaf, version, options, count=len(places)):
                which = [places[at] for at in page.body.which]
                yield _sealed(which, 0, path, report, page, seal)


@lru_cache(_FIELDS_KEPT)
def _kind_of_type(name: str) -> str | None:
    # A struct without fields has no type of storage.
    kind = None if name == "struct" else logical_type.storage_type_of(name)
    if kind is None or kind.id not in _PLAIN_TYPES:
        return None
    bits = NUMBER_BITS.get(kind.id, 0)
    return f"{bits} bits" if bits in WORDS else name


def encode_column(
    column: ColumnLeaf,
    version: FileVersion,
    seal: Seal,
    defaults: EncodingOptions,
    *,
    blobs: BlobSink | None,
) -> Iterator[EncodedPages]:
    """Yield the pages of a column, whose options are `defaults` if its field asks for nothing."""
    leaf, path = column.leaf, column.path
    field = leaf.field
    options = defaults
    if field.metadata:
        options = EncodingOptions.from_metadata(field.name, field.metadata)
    if field.is_blob_v2:
        leaf = with_placed_blobs(leaf, options, sink_of(blobs, field))
    multiple = rows_multiple(path)
    if leaf.repetition is None and multiple == 1 and options == PLAIN_OPTIONS:
        small = small_page(leaf.values, leaf.layers, leaf.definition)
        if small is not None:
            encoded = [*_encode_small({0: small}, [name_of(path)], column, version, seal)]
            if encoded:
                yield from encoded
                return
    for page in encode_leaf(leaf, version, options, multiple=multiple):
        report = _Reported([name_of(path)], [value_bytes(page.leaf.values)])
        yield _sealed([0], column.column, path, report, page, seal, multiple)


def _encode_small(
    pages: Mapping[int, Small],
    names: Sequence[str],
    like: ColumnLeaf,
    version: FileVersion,
    seal: Seal,
) -> Iterator[EncodedPages]:
    """Yield those of some pages, by the places of their fields, that turn out to be small."""
    if not pages:
        return
    places, small = [*pages], [*pages.values()]
    rows = len(like.leaf.values)
    report = _Reported([names[place] for place in places], [each.told_bytes for each in small])
    for which, body in encode_small(small, rows, version):
        own = [places[at] for at in which]
        page = PageBody(0, rows, like.leaf, body)
        yield _sealed(own, like.column, like.path, report, page, seal)


def _sealed(
    fields: Sequence[int],
    column: int,
    path: Path,
    report: _Reported,
    page: PageBody,
    seal: Seal,
    multiple: int = 1,
) -> EncodedPages:
    encoding, buffers = seal(path, page)
    body = page.body
    chosen = partial(
        report.choices,
        body.which,
        _LAYOUT_NAMES[type(body.layout)],
        (body.encodings, body.refused),
        [each.size for each in body.buffers],
    )
    return EncodedPages(
        fields, column, page.first_row // multiple, page.rows, buffers, encoding, chosen
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Reported:
    """What a report tells of pages besides what was chosen: of which columns, of how many bytes."""

    names: Sequence[str]
    raw_bytes: Sequence[int] | Int64s

    def choices(
        self,
        which: Sequence[int],
        layout: str,
        chosen: tuple[Sequence[str], Sequence[Mapping[str, str]]],
        sizes: Sequence[Int64s],
    ) -> list[ColumnChoice]:
        """Return what was chosen for some of the pages, from the sizes of their buffers."""
        stored = np.sum(sizes, axis=0).tolist() if sizes else [0] * len(which)
        return [
            ColumnChoice(self.names[page], layout, encoding, int(self.raw_bytes[page]), size, other)
            for page, encoding, other, size in zip(which, *chosen, stored, strict=True)
        ]


@lru_cache(_FIELDS_KEPT)
def _checked(field: Field, version: FileVersion) -> tuple[Node, tuple[Path, ...]]:
    """Return the tree of a field that files of a version can store, and the ways to its leaves."""
    check_storable(field, version)
    node = nest(field, version)
    return node, tuple(paths(node))


def sink_of(blobs: BlobSink | None, field: Field) -> BlobSink:
    """Return the place for blobs, which there must be."""
    if blobs is None:
        raise InternalError("a blob column is written without a blob writer", field=field.name)
    return blobs


def _check_nesting(path: Path) -> None:
    """Raise for a column that could be written, but that the reference would fail to read."""
    kinds = {type(node) for node in path}
    if kinds >= {FixedListNode, ListNode}:
        raise UnsupportedError(
            "fixed-size lists of structs are not written inside of lists, nor around them",
            column=name_of(path),
        )
    if any(isinstance(node, FixedListNode) and not node.dimension for node in path):
        raise UnsupportedError("no file can store lists of no items", column=name_of(path))


def _check_empty_structs(leaf_paths: Sequence[Path]) -> None:
    """Raise for a struct without children in front of a sibling that holds something.

    The reference takes its levels for those of the sibling, and reads nulls.
    """
    for path, following in pairwise(leaf_paths):
        if _is_empty_struct(path[-1].data_type) and not _is_empty_struct(following[-1].data_type):
            raise UnsupportedError(
                "files from 2.1 on cannot have a struct without children before other columns of "
                "the same field; let it be the last child, or write 2.0",
                column=name_of(path),
                following=name_of(following),
            )


def _is_empty_struct(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) and not data_type.num_fields


def _check_leaf(path: Path, data_type: pa.DataType) -> None:
    """Raise for fixed-size lists of values of many sizes or of none, and for odd blobs."""
    field = path[-1].field
    if field.is_blob and not field.is_blob_v2 and not pa.types.is_large_binary(data_type):
        raise UnsupportedError(
            "only large binary can be stored as blobs", column=name_of(path), type=str(data_type)
        )
    item = data_type
    while pa.types.is_fixed_size_list(item) and item.list_size:
        item = item.value_type
    if not pa.types.is_fixed_size_list(data_type) or pa.types.is_null(item) or has_no_bytes(item):
        return
    if not has_fixed_width(item):
        raise UnsupportedError(
            "no file can store this type", column=name_of(path), type=str(data_type)
        )


def _check_packed(path: Path, version: FileVersion) -> None:
    """Raise for packed structs with children that no row of bytes can hold."""
    data_type = path[-1].data_type
    if not pa.types.is_struct(data_type):
        return
    for index in range(data_type.num_fields):
        child = data_type.field(index)
        if not _is_packable(child.type, version):
            raise UnsupportedError(
                f"files of version {version.value} cannot pack a struct with this child",
                column=name_of(path),
                child=child.name,
                type=str(child.type),
            )


def _is_packable(data_type: pa.DataType, version: FileVersion) -> bool:
    """Whether values are whole bytes, from 2.2 on also vectors of such, and strings."""
    item = data_type
    if version >= FileVersion.V2_2:
        while pa.types.is_fixed_size_list(item) and item.list_size:
            item = item.value_type
        if is_variable(data_type):
            return True
    return has_fixed_width(item) and not pa.types.is_boolean(item)


def name_of(path: Path) -> str:
    """Return the names of the fields on the way to a leaf."""
    return ".".join(node.field.name for node in path)

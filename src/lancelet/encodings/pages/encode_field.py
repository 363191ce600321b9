"""Encoding of a field into pages of its columns, for the generations with levels.

    array  --shred-->  leaf per column  --encode_leaf-->  page bodies  --pack-->  EncodedPages

Generations differ only in the conversion of page bodies to messages (`PackPages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.arrow import (
    NUMBER_BITS,
    has_fixed_width,
    has_no_bytes,
    is_variable,
    value_bytes,
)
from lancelet.encodings.base import BlobSink, ColumnChoice, EncodedPages, FileVersion
from lancelet.encodings.blobs.v1 import is_blob_v1
from lancelet.encodings.blobs.v2 import write_blob_data
from lancelet.encodings.choice.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.encodings.choice.trials import Trial
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
    shred_leaf,
)
from lancelet.encodings.pages.encode_leaf import encode_leaf
from lancelet.encodings.pages.encode_pages import PageInput, encode_pages, page_input
from lancelet.encodings.pages.layout import (
    ConstantLayout,
    FullZipLayout,
    MiniBlockLayout,
    PageBody,
)
from lancelet.errors import InternalError, UnsupportedError
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.values import dataclass

PackPages: TypeAlias = Callable[[Path, PageBody], tuple[bytes, tuple[ByteSlices, ...]]]
"""Returns the enveloped message and the buffers of pages."""

_FIELDS_CACHED: Final = 4096
"""Number of fields in the cache of storage types."""

_TEXTS: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
_PLAIN_TYPES: Final = frozenset([*NUMBER_BITS, *(data_type.id for data_type in _TEXTS)])

_LAYOUT_NAMES: Final = {
    MiniBlockLayout: "mini-block",
    FullZipLayout: "full-zip",
    ConstantLayout: "constant",
}


@dataclass(frozen=True, slots=True, eq=False)
class ColumnLeaf:
    """The values of one column of a field."""

    column: int
    path: Path
    leaf: ShreddedLeaf

    @property
    def is_blob_v1(self) -> bool:
        """Whether the values are written to the data file itself, as before 2.2."""
        return is_blob_v1(self.leaf.field)


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the leaf fields of `field`, each a column, in order."""
    return tuple(path[-1].field for path in paths(nest(field, version)))


def check_storable(field: Field, version: FileVersion) -> None:
    """Raise `UnsupportedError` unless files of `version` can store a field of this type."""
    leaf_paths = tuple(paths(nest(field, version)))
    _check_empty_structs(leaf_paths)
    for path in leaf_paths:
        _check_nesting(path)
        _check_leaf(path, path[-1].data_type)
        _check_packed(path, version)


def column_leaves(array: pa.Array, field: Field, version: FileVersion) -> Iterator[ColumnLeaf]:
    """Validate a field and yield the leaf of each column."""
    node, leaf_paths = _validated(field, version)
    if len(array):
        for column, leaf in enumerate(shred(node, array)):
            yield ColumnLeaf(column, leaf_paths[column], leaf)


def is_plain(field: Field) -> bool:
    """Return whether a field has numbers or strings and no options.

    Such fields are encoded together.
    """
    return not field.children and not field.metadata and _is_plain_type(field.logical_type)


@lru_cache(_FIELDS_CACHED)
def _is_plain_type(name: str) -> bool:
    # A struct without fields has no storage type.
    storage_type = None if name == "struct" else logical_type.storage_type_of(name)
    return storage_type is not None and storage_type.id in _PLAIN_TYPES


def encode_plain(
    arrays: Sequence[pa.Array],
    fields: Sequence[Field],
    version: FileVersion,
    options: EncodingOptions,
    pack: PackPages,
) -> Iterator[EncodedPages]:
    """Yield pages of plain fields with equal row counts."""
    rest: Mapping[int, Sequence[Trial] | None] = dict.fromkeys(range(len(arrays)))
    if options == PLAIN_OPTIONS:
        pages = (
            (index, page_input(array, plain_layers(array))) for index, array in enumerate(arrays)
        )
        inputs = {index: page for index, page in pages if page is not None}
        path = (LeafNode(fields[0], arrays[0].type),)
        leaf = ShreddedLeaf(fields[0], plain_layers(arrays[0]), None, None, arrays[0])
        names = [field.name for field in fields]
        encoded = _encode_inputs(inputs, names, ColumnLeaf(0, path, leaf), version, pack)
        yield from encoded.pages
        done = {index for each in encoded.pages for index in each.fields}
        rest = {index: encoded.trials.get(index) for index in rest if index not in done}
    for index, trials in rest.items():
        leaf = shred_leaf(fields[index], arrays[index])
        path = (LeafNode(fields[index], leaf.values.type),)
        report = _PageReport([fields[index].name], [value_bytes(leaf.values)])
        for page in encode_leaf(leaf, version, options, trials=trials):
            yield _to_encoded_pages([index], 0, path, report, page, pack)


def encode_column(
    column: ColumnLeaf,
    version: FileVersion,
    pack: PackPages,
    defaults: EncodingOptions,
    *,
    blobs: BlobSink | None,
) -> Iterator[EncodedPages]:
    """Yield the pages of a column, with `defaults` as options unless the field has metadata."""
    leaf, path = column.leaf, column.path
    field = leaf.field
    options = defaults
    if field.metadata:
        options = EncodingOptions.from_metadata(field.name, field.metadata)
    if field.is_blob_v2:
        leaf = write_blob_data(leaf, options, sink_of(blobs, field))
    multiple = rows_multiple(path)
    trials = None
    if leaf.repetition is None and multiple == 1 and options == PLAIN_OPTIONS:
        page = page_input(leaf.values, leaf.layers, leaf.definition)
        if page is not None:
            encoded = _encode_inputs({0: page}, [name_of(path)], column, version, pack)
            if encoded.pages:
                yield from encoded.pages
                return
            trials = encoded.trials.get(0)
    for body in encode_leaf(leaf, version, options, multiple=multiple, trials=trials):
        report = _PageReport([name_of(path)], [value_bytes(body.leaf.values)])
        yield _to_encoded_pages([0], column.column, path, report, body, pack, multiple)


class _EncodedInputs(NamedTuple):
    """The pages that the kernel encoded, and trials for others, by field index."""

    pages: Sequence[EncodedPages]
    trials: Mapping[int, Sequence[Trial]]


def _encode_inputs(
    pages: Mapping[int, PageInput],
    names: Sequence[str],
    column: ColumnLeaf,
    version: FileVersion,
    pack: PackPages,
) -> _EncodedInputs:
    """Encode pages, by field index, with the kernel."""
    if not pages:
        return _EncodedInputs((), {})
    field_indices, inputs = [*pages], [*pages.values()]
    rows = len(column.leaf.values)
    report = _PageReport(
        [names[index] for index in field_indices], [each.num_bytes for each in inputs]
    )
    bodies, trials = encode_pages(inputs, rows, version)
    encoded = [
        _to_encoded_pages(
            [field_indices[position] for position in body.page_indices],
            column.column,
            column.path,
            report,
            PageBody(0, rows, column.leaf, body),
            pack,
        )
        for body in bodies
    ]
    return _EncodedInputs(
        encoded, {field_indices[position]: each for position, each in trials.items()}
    )


def _to_encoded_pages(
    fields: Sequence[int],
    column: int,
    path: Path,
    report: _PageReport,
    page: PageBody,
    pack: PackPages,
    multiple: int = 1,
) -> EncodedPages:
    encoding, buffers = pack(path, page)
    body = page.body
    choices = partial(
        report.choices,
        body.page_indices,
        _LAYOUT_NAMES[type(body.layout)],
        (body.encodings, body.refused),
        [buffer.size for buffer in body.buffers],
    )
    return EncodedPages(
        fields, column, page.first_row // multiple, page.rows, buffers, encoding, choices
    )


@dataclass(frozen=True, slots=True, eq=False)
class _PageReport:
    """Column names and raw sizes of pages, for encoding reports."""

    names: Sequence[str]
    raw_bytes: Sequence[int] | Int64s

    def choices(
        self,
        page_indices: Sequence[int],
        layout: str,
        chosen: tuple[Sequence[str], Sequence[Mapping[str, str]]],
        sizes: Sequence[Int64s],
    ) -> list[ColumnChoice]:
        """Return the report entries of a subset of the pages, from their buffer sizes."""
        stored = np.sum(sizes, axis=0).tolist() if sizes else [0] * len(page_indices)
        return [
            ColumnChoice(self.names[page], layout, encoding, int(self.raw_bytes[page]), size, other)
            for page, encoding, other, size in zip(page_indices, *chosen, stored, strict=True)
        ]


@lru_cache(_FIELDS_CACHED)
def _validated(field: Field, version: FileVersion) -> tuple[Node, tuple[Path, ...]]:
    """Return the validated tree of a field and the paths to its leaves."""
    check_storable(field, version)
    node = nest(field, version)
    return node, tuple(paths(node))


def sink_of(blobs: BlobSink | None, field: Field) -> BlobSink:
    """Return the blob sink, or raise if missing."""
    if blobs is None:
        raise InternalError("a blob column is written without a blob writer", field=field.name)
    return blobs


def _check_nesting(path: Path) -> None:
    """Raise for nested types that the reference cannot read."""
    kinds = {type(node) for node in path}
    if kinds >= {FixedListNode, ListNode}:
        raise UnsupportedError(
            "fixed-size lists of structs cannot be combined with lists; use variable-size lists",
            column=name_of(path),
        )
    if any(isinstance(node, FixedListNode) and not node.dimension for node in path):
        raise UnsupportedError(
            "no file version can store lists with zero items", column=name_of(path)
        )


def _check_empty_structs(leaf_paths: Sequence[Path]) -> None:
    """Raise for a struct without children before a non-empty sibling.

    The reference would assign its levels to the sibling and read nulls.
    """
    for path, following in pairwise(leaf_paths):
        if _is_empty_struct(path[-1].data_type) and not _is_empty_struct(following[-1].data_type):
            raise UnsupportedError(
                "since version 2.1, a struct without children must be the last child of its "
                "field; reorder the children or write version 2.0",
                column=name_of(path),
                following=name_of(following),
            )


def _is_empty_struct(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) and not data_type.num_fields


def _check_leaf(path: Path, data_type: pa.DataType) -> None:
    """Raise for fixed-size lists of variable-size or empty values, and for unsupported blobs."""
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
            "no file version can store this type", column=name_of(path), type=str(data_type)
        )


def _check_packed(path: Path, version: FileVersion) -> None:
    """Raise for packed structs with children that cannot be packed."""
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
    """Return whether values are whole bytes; since 2.2 also lists of them, and strings."""
    item = data_type
    if version >= FileVersion.V2_2:
        while pa.types.is_fixed_size_list(item) and item.list_size:
            item = item.value_type
        if is_variable(data_type):
            return True
    return has_fixed_width(item) and not pa.types.is_boolean(item)


def name_of(path: Path) -> str:
    """Return the dotted path of a leaf."""
    return ".".join(node.field.name for node in path)

"""A field of a schema: a top-level column or a nested field.

Fields are identified by id, which renames and reordering preserve; data files list field ids. A
field has three types:

    on disk            logical_type "json", extension name lance.json
    for encodings      storage_type large_binary
    for users          arrow_type   extension<arrow.json>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NewType, Self

import pyarrow as pa

from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format import blob_values, extension, logical_type
from lancelet.format.logical_type import Encoding, encoding_of, logical_type_of
from lancelet.format.wire import parse_number
from lancelet.values import dataclass, replace

FieldId = NewType("FieldId", int)

NO_PARENT: Final = FieldId(-1)
NO_ID: Final = FieldId(-1)

BLOB_KEY: Final = "lance-encoding:blob"
PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION: Final = "lance-schema:unenforced-primary-key:position"
CLUSTERING_KEY_POSITION: Final = "lance-schema:unenforced-clustering-key:position"

_PACKED_KEYS: Final = ("lance-encoding:packed", "packed")
_BLOB_V2_TYPE: Final = blob_values.STORAGE_WITHOUT_RANGE
_TRUE_TEXTS: Final = frozenset({"true", "1", "yes"})


@dataclass(frozen=True, slots=True)
class DictionaryLocation:
    """The byte range of a 0.1 dictionary in the file that contains the schema."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema, with its children.

    `primary_key` and `clustering_key` are positions in the unenforced key, counted from 1; 0 means
    part of the key in field order, and None not part of the key. `unknown` preserves protobuf
    fields that a later release wrote.
    """

    name: str
    id: FieldId
    logical_type: str
    parent_id: FieldId = NO_PARENT
    nullable: bool = True
    children: tuple[Field, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    encoding: Encoding = Encoding.NONE
    dictionary: DictionaryLocation | None = None
    extension_name: str = ""
    primary_key: int | None = None
    clustering_key: int | None = None
    unknown: bytes = b""

    def __hash__(self) -> int:
        """Hash a few attributes only, because fields are frequent dictionary keys."""
        return hash((self.id, self.name, self.logical_type))

    @staticmethod
    def from_arrow(
        arrow: pa.Field,
        ids: Iterator[int],
        *,
        parent_id: FieldId = NO_PARENT,
        blob_v2: bool = False,
    ) -> Field:
        """Create a field from an Arrow field, assigning ids from `ids` depth-first.

        With `blob_v2`, binary fields that request blob encoding become blob structs, the storage of
        file versions 2.2 and later.
        """
        return _from_arrow(arrow, ids, parent_id=parent_id, blob_v2=blob_v2)

    @property
    def storage_type(self) -> pa.DataType:
        """The Arrow type that encodings store: extension storage types, no metadata."""
        return _to_arrow_type(self, lambda child: _arrow_field(child, child.storage_type))

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type that users see, with extension types restored."""
        return self.to_arrow().type

    @property
    def is_list(self) -> bool:
        """Whether values are variable-length lists."""
        return self.logical_type.startswith(("list", "large_list"))

    @property
    def is_leaf(self) -> bool:
        """Whether the field has no child fields."""
        return not self.children

    @property
    def is_blob(self) -> bool:
        """Whether this is a blob field (v1 or v2).

        Like the reference, only the presence of the key counts: the value `false` also makes a
        blob.
        """
        return self.is_blob_v2 or BLOB_KEY in self.metadata

    @property
    def is_blob_v2(self) -> bool:
        """Whether the field is a blob struct, the storage of blobs from file version 2.2 on."""
        return self.extension_name == extension.BLOB_V2

    @property
    def is_packed(self) -> bool:
        """Whether a struct stores its children row by row in one column."""
        return any(_is_true(self.metadata.get(key)) for key in _PACKED_KEYS)

    def walk(self) -> Iterator[Field]:
        """Return the field and its descendants, parents first."""
        return self._walk() if self.children else iter((self,))

    def _walk(self) -> Iterator[Field]:
        yield self
        for child in self.children:
            yield from child.walk()

    def child(self, name: str) -> Field | None:
        """Return the child with the given name, or None."""
        return next((child for child in self.children if child.name == name), None)

    def to_arrow(self) -> pa.Field:
        """Return the Arrow field that users see."""
        simple = None if self.metadata else logical_type.simple_type_of(self.logical_type)
        if simple is not None and not self.children:
            return pa.field(self.name, simple, self.nullable)
        stored = self.to_stored_arrow()
        if any(_has_extension(node) for node in self.walk()):
            return extension.restore_extensions(stored)
        return stored

    def to_stored_arrow(self) -> pa.Field:
        """Return the Arrow field with extension types as storage types and metadata entries."""
        metadata = dict(self.metadata)
        data_type = _to_arrow_type(self, Field.to_stored_arrow)
        if self.logical_type == logical_type.JSON:
            data_type = pa.string()
            metadata[extension.NAME_KEY] = extension.ARROW_JSON
        return _arrow_field(self, data_type).with_metadata(encode_metadata(metadata))

    def with_metadata(self, metadata: Mapping[str, str]) -> Self:
        """Return the field with other metadata and the keys that the metadata declares."""
        return replace(
            self,
            metadata=dict(metadata),
            extension_name=metadata.get(extension.NAME_KEY, ""),
            primary_key=_primary_key(metadata),
            clustering_key=parse_number(metadata.get(CLUSTERING_KEY_POSITION)),
        )

    def with_children(self, children: Iterable[Field]) -> Self:
        """Return the field with other children."""
        return replace(self, children=tuple(children))

    def with_ids(self, ids: Iterator[int], parent_id: FieldId = NO_PARENT) -> Self:
        """Return the field and its descendants with new ids, taken from `ids` depth-first."""
        field_id = FieldId(next(ids))
        children = tuple(child.with_ids(ids, field_id) for child in self.children)
        return replace(self, id=field_id, parent_id=parent_id, children=children)


def encode_metadata(metadata: Mapping[str, str]) -> dict[bytes, bytes] | None:
    """Encode metadata for Arrow; text decoded from invalid UTF-8 is restored to its bytes."""
    if not metadata:
        return None
    return {encode_text(key): encode_text(value) for key, value in metadata.items()}


def decode_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Decode the metadata of an Arrow field or schema to text."""
    return {_decode_key(key): decode_text(value) for key, value in (metadata or {}).items()}


def _decode_key(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("metadata keys must be UTF-8", key=key) from error


def encode_text(text: str) -> bytes:
    """Encode metadata text; the inverse of `decode_text`."""
    return text.encode("utf-8", "surrogateescape")


def decode_text(data: bytes) -> str:
    """Decode bytes to text; invalid UTF-8 bytes become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _has_extension(node: Field) -> bool:
    return (
        extension.NAME_KEY in node.metadata
        or node.logical_type == logical_type.JSON
        or logical_type.BFLOAT16 in node.logical_type
    )


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() in _TRUE_TEXTS


def _primary_key(metadata: Mapping[str, str]) -> int | None:
    position = parse_number(metadata.get(PRIMARY_KEY_POSITION))
    if position is None and _is_true(metadata.get(PRIMARY_KEY)):
        return 0
    return position


def _arrow_field(node: Field, data_type: pa.DataType) -> pa.Field:
    """Return an Arrow field of the given type; fields of the null type are always nullable."""
    return pa.field(node.name, data_type, node.nullable or pa.types.is_null(data_type))


def _to_arrow_type(node: Field, convert_child: Callable[[Field], pa.Field]) -> pa.DataType:
    """Return the Arrow type of a field, with children converted by `convert_child`."""
    kind = node.logical_type
    simple = logical_type.simple_type_of(kind)
    if simple is not None and not node.children:
        return simple
    if kind == logical_type.STRUCT:
        return pa.struct([convert_child(child) for child in node.children])
    if kind in logical_type.LISTS:
        return pa.list_(convert_child(_only_child(node)))
    if kind in logical_type.LARGE_LISTS:
        return pa.large_list(convert_child(_only_child(node)))
    list_size = logical_type.list_size_of(kind)
    if list_size is not None:
        return pa.list_(convert_child(_only_child(node)), list_size)
    if kind == logical_type.MAP:
        entries = _only_child(node)
        if entries.logical_type != logical_type.STRUCT or len(entries.children) != 2:
            raise CorruptDataError(
                "a map field must contain structs of two fields", field=node.name
            )
        key, value = (convert_child(child) for child in entries.children)
        if pa.types.is_null(key.type):
            raise CorruptDataError("a map field has keys of the null type", field=node.name)
        # Arrow libraries do not agree on other names, so stored names are not exposed.
        return pa.map_(key.with_nullable(False).with_name("key"), value.with_name("value"))
    if node.children:
        raise CorruptDataError(
            "a field of this type cannot have children", field=node.name, logical_type=kind
        )
    return logical_type.storage_type_of(kind)


def _only_child(node: Field) -> Field:
    if len(node.children) != 1:
        raise CorruptDataError(
            "a list or map field must have exactly one child",
            field=node.name,
            logical_type=node.logical_type,
            children=len(node.children),
        )
    return node.children[0]


def _from_arrow(arrow: pa.Field, ids: Iterator[int], *, parent_id: FieldId, blob_v2: bool) -> Field:
    arrow_metadata = arrow.metadata
    plain = None if arrow_metadata else logical_type.plain_name_of(arrow.type)
    if plain is not None:
        return Field(
            arrow.name,
            FieldId(next(ids)),
            plain,
            parent_id,
            arrow.nullable,
            encoding=encoding_of(plain),
        )
    metadata = decode_metadata(arrow_metadata)
    if isinstance(arrow.type, pa.BaseExtensionType):
        metadata |= extension.extension_entries(arrow.type)
    data_type = logical_type.storage_of(arrow.type)
    if blob_v2 and _requests_blob(data_type, metadata):
        data_type = _BLOB_V2_TYPE
        del metadata[BLOB_KEY]
        metadata[extension.NAME_KEY] = extension.BLOB_V2
    try:
        kind = _json_type(data_type, metadata) or logical_type_of(data_type)
    except UnsupportedError as error:
        raise error.with_facts(field=arrow.name) from error
    field_id = FieldId(next(ids))
    children = tuple(
        _from_arrow(child, ids, parent_id=field_id, blob_v2=blob_v2)
        for child in _child_fields(data_type, kind)
    )
    stored = Field(
        name=arrow.name,
        id=field_id,
        logical_type=kind,
        parent_id=parent_id,
        nullable=arrow.nullable,
        children=children,
        encoding=encoding_of(kind),
    )
    return stored.with_metadata(metadata) if metadata else stored


def _requests_blob(data_type: pa.DataType, metadata: Mapping[str, str]) -> bool:
    return not pa.types.is_nested(data_type) and BLOB_KEY in metadata


def _json_type(data_type: pa.DataType, metadata: dict[str, str]) -> str | None:
    """Return the JSON type of a JSON field, or None; set the extension name to the stored one."""
    name = metadata.get(extension.NAME_KEY)
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    is_binary = pa.types.is_large_binary(data_type)
    if (name == extension.ARROW_JSON and is_text) or (name == extension.LANCE_JSON and is_binary):
        metadata[extension.NAME_KEY] = extension.LANCE_JSON
        return logical_type.JSON
    return None


def _child_fields(data_type: pa.DataType, kind: str) -> tuple[pa.Field, ...]:
    if kind == logical_type.STRUCT:
        return tuple(data_type.field(index) for index in range(data_type.num_fields))
    if kind in logical_type.LISTS or kind in logical_type.LARGE_LISTS:
        return (data_type.value_field,)
    if kind == logical_type.MAP:
        entries = pa.struct([data_type.key_field, data_type.item_field])
        return (pa.field("entries", entries, nullable=False),)
    return (data_type.value_field,) if logical_type.list_size_of(kind) is not None else ()


def check_primary_key(fields: Iterable[Field]) -> None:
    """Raise if a primary key field is nullable, nested in a list, or not a leaf."""
    for node in fields:
        _check_key(node, nullable=False, in_list=False)


def _check_key(node: Field, *, nullable: bool, in_list: bool) -> None:
    nullable = nullable or node.nullable
    if node.primary_key is not None:
        if nullable:
            raise InvalidInputError(
                "a primary key field and its ancestors must not be nullable", field=node.name
            )
        if not node.is_leaf or node.logical_type == logical_type.STRUCT:
            raise InvalidInputError("a primary key field must be a leaf", field=node.name)
        if in_list:
            raise InvalidInputError(
                "a primary key field must not be nested in a list", field=node.name
            )
    in_list = in_list or node.logical_type != logical_type.STRUCT
    for child in node.children:
        _check_key(child, nullable=nullable, in_list=in_list)

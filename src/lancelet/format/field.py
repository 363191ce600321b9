"""One node of a schema tree: a column, or a part of one.

A field is known by its id, which survives renames and reordering; data files list the ids they
hold. The types a field can be seen as:

    on disk            logical_type "json", extension name lance.json
    by encodings       storage_type large_binary
    by users           arrow_type   extension<arrow.json>
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
_TRUE_WORDS: Final = frozenset({"true", "1", "yes"})


@dataclass(frozen=True, slots=True)
class DictionaryLocation:
    """Where the values of a 0.1 dictionary are, in the file that holds the schema."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema, with its children.

    `primary_key` and `clustering_key` are positions in the unenforced key, counted from 1;
    0 means part of the key in the order of the fields, and None means not part of it.
    `unknown` is the wire form of what a later release wrote and this one does not know.
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
        """Return what nearly always tells fields apart; much is looked up by field."""
        return hash((self.id, self.name, self.logical_type))

    @staticmethod
    def from_arrow(
        arrow: pa.Field,
        ids: Iterator[int],
        *,
        parent_id: FieldId = NO_PARENT,
        blob_v2: bool = False,
    ) -> Field:
        """Make a field of an Arrow field, taking ids depth-first from `ids`.

        With `blob_v2`, binary fields that ask for blob encoding become blob structs, as file
        versions from 2.2 on store them.
        """
        return _from_arrow(arrow, ids, parent_id=parent_id, blob_v2=blob_v2)

    @property
    def storage_type(self) -> pa.DataType:
        """The Arrow type that encodings see: storage of extensions, no metadata."""
        return _type_of(self, lambda child: _arrow_field(child, child.storage_type))

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type that users see, with extension types restored."""
        return self.to_arrow().type

    @property
    def is_list(self) -> bool:
        """Whether values are lists of any length."""
        return self.logical_type.startswith(("list", "large_list"))

    @property
    def is_leaf(self) -> bool:
        """Whether the field has no child fields."""
        return not self.children

    @property
    def is_blob(self) -> bool:
        """Whether values live outside of pages, in either generation of blobs.

        The reference looks for the key only, so that `false` makes a field one as well.
        """
        return self.is_blob_v2 or BLOB_KEY in self.metadata

    @property
    def is_blob_v2(self) -> bool:
        """Whether the field is a blob struct, as file versions from 2.2 on store blobs."""
        return self.extension_name == extension.BLOB_V2

    @property
    def is_packed(self) -> bool:
        """Whether a struct asks for its children to be stored row by row in one column."""
        return any(_is_true(self.metadata.get(key)) for key in _PACKED_KEYS)

    def walk(self) -> Iterator[Field]:
        """Return the field and all fields within it, parents first."""
        return self._walk() if self.children else iter((self,))

    def _walk(self) -> Iterator[Field]:
        yield self
        for child in self.children:
            yield from child.walk()

    def child(self, name: str) -> Field | None:
        """Return the child of that name, if there is one."""
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
        """Return the Arrow field with extension types as storage and metadata entries."""
        metadata = dict(self.metadata)
        data_type = _type_of(self, Field.to_stored_arrow)
        if self.logical_type == logical_type.JSON:
            data_type = pa.string()
            metadata[extension.NAME_KEY] = extension.ARROW_JSON
        return _arrow_field(self, data_type).with_metadata(encode_metadata(metadata))

    def with_metadata(self, metadata: Mapping[str, str]) -> Self:
        """Return the field with other metadata, and with the keys that it declares."""
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
        """Return the field and all fields within it with ids taken depth-first from `ids`."""
        own = FieldId(next(ids))
        children = tuple(child.with_ids(ids, own) for child in self.children)
        return replace(self, id=own, parent_id=parent_id, children=children)


def encode_metadata(metadata: Mapping[str, str]) -> dict[bytes, bytes] | None:
    """Return metadata as Arrow wants it; text that was not UTF-8 becomes its bytes again."""
    if not metadata:
        return None
    return {encode_text(key): encode_text(value) for key, value in metadata.items()}


def decode_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the metadata of an Arrow field or schema as text."""
    return {_decode_key(key): decode_text(value) for key, value in (metadata or {}).items()}


def _decode_key(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("a key of metadata must be UTF-8", key=key) from error


def encode_text(text: str) -> bytes:
    """Return the bytes of metadata text; the inverse of `decode_text`."""
    return text.encode("utf-8", "surrogateescape")


def decode_text(data: bytes) -> str:
    """Return bytes as text, where bytes that are not UTF-8 survive as lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _has_extension(node: Field) -> bool:
    return (
        extension.NAME_KEY in node.metadata
        or node.logical_type == logical_type.JSON
        or logical_type.BFLOAT16 in node.logical_type
    )


def _is_true(word: str | None) -> bool:
    return word is not None and word.lower() in _TRUE_WORDS


def _primary_key(metadata: Mapping[str, str]) -> int | None:
    position = parse_number(metadata.get(PRIMARY_KEY_POSITION))
    if position is None and _is_true(metadata.get(PRIMARY_KEY)):
        return 0
    return position


def _arrow_field(node: Field, data_type: pa.DataType) -> pa.Field:
    """Return a field of that type; a column that is null in every row is always nullable."""
    return pa.field(node.name, data_type, node.nullable or pa.types.is_null(data_type))


def _type_of(node: Field, child_of: Callable[[Field], pa.Field]) -> pa.DataType:
    """Return the Arrow type of a field whose children are seen as `child_of` says."""
    kind = node.logical_type
    simple = logical_type.simple_type_of(kind)
    if simple is not None and not node.children:
        return simple
    if kind == logical_type.STRUCT:
        return pa.struct([child_of(child) for child in node.children])
    if kind in logical_type.LISTS:
        return pa.list_(child_of(_only_child(node)))
    if kind in logical_type.LARGE_LISTS:
        return pa.large_list(child_of(_only_child(node)))
    list_size = logical_type.list_size_of(kind)
    if list_size is not None:
        return pa.list_(child_of(_only_child(node)), list_size)
    if kind == logical_type.MAP:
        entries = _only_child(node)
        if entries.logical_type != logical_type.STRUCT or len(entries.children) != 2:
            raise CorruptDataError("a map must hold structs of two fields", field=node.name)
        key, value = (child_of(child) for child in entries.children)
        if pa.types.is_null(key.type):
            raise CorruptDataError("the keys of a map are null", field=node.name)
        # Arrow libraries do not agree on other names, so users see these, whatever is stored.
        return pa.map_(key.with_nullable(False).with_name("key"), value.with_name("value"))
    if node.children:
        raise CorruptDataError(
            "a field of this type has no children", field=node.name, logical_type=kind
        )
    return logical_type.storage_type_of(kind)


def _only_child(node: Field) -> Field:
    if len(node.children) != 1:
        raise CorruptDataError(
            "a list or map must have one child field",
            field=node.name,
            logical_type=node.logical_type,
            children=len(node.children),
        )
    return node.children[0]


def _from_arrow(arrow: pa.Field, ids: Iterator[int], *, parent_id: FieldId, blob_v2: bool) -> Field:
    told = arrow.metadata
    plain = None if told else logical_type.plain_name_of(arrow.type)
    if plain is not None:
        return Field(
            arrow.name,
            FieldId(next(ids)),
            plain,
            parent_id,
            arrow.nullable,
            encoding=encoding_of(plain),
        )
    metadata = decode_metadata(told)
    if isinstance(arrow.type, pa.BaseExtensionType):
        metadata |= extension.extension_entries(arrow.type)
    data_type = logical_type.storage_of(arrow.type)
    if blob_v2 and _asks_for_blob(data_type, metadata):
        data_type = _BLOB_V2_TYPE
        del metadata[BLOB_KEY]
        metadata[extension.NAME_KEY] = extension.BLOB_V2
    try:
        kind = _json_type(data_type, metadata) or logical_type_of(data_type)
    except UnsupportedError as error:
        raise error.with_facts(field=arrow.name) from error
    own = FieldId(next(ids))
    children = tuple(
        _from_arrow(child, ids, parent_id=own, blob_v2=blob_v2)
        for child in _children_of(data_type, kind)
    )
    stored = Field(
        name=arrow.name,
        id=own,
        logical_type=kind,
        parent_id=parent_id,
        nullable=arrow.nullable,
        children=children,
        encoding=encoding_of(kind),
    )
    return stored.with_metadata(metadata) if metadata else stored


def _asks_for_blob(data_type: pa.DataType, metadata: Mapping[str, str]) -> bool:
    return not pa.types.is_nested(data_type) and BLOB_KEY in metadata


def _json_type(data_type: pa.DataType, metadata: dict[str, str]) -> str | None:
    """Return the JSON type if the field is one, and rename its extension to the stored name."""
    name = metadata.get(extension.NAME_KEY)
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    is_binary = pa.types.is_large_binary(data_type)
    if (name == extension.ARROW_JSON and is_text) or (name == extension.LANCE_JSON and is_binary):
        metadata[extension.NAME_KEY] = extension.LANCE_JSON
        return logical_type.JSON
    return None


def _children_of(data_type: pa.DataType, kind: str) -> tuple[pa.Field, ...]:
    if kind == logical_type.STRUCT:
        return tuple(data_type.field(index) for index in range(data_type.num_fields))
    if kind in logical_type.LISTS or kind in logical_type.LARGE_LISTS:
        return (data_type.value_field,)
    if kind == logical_type.MAP:
        entries = pa.struct([data_type.key_field, data_type.item_field])
        return (pa.field("entries", entries, nullable=False),)
    return (data_type.value_field,) if logical_type.list_size_of(kind) is not None else ()


def check_primary_key(fields: Iterable[Field]) -> None:
    """Refuse key fields that are nullable, nested in lists, or not leaves."""
    for node in fields:
        _check_key(node, nullable=False, in_list=False)


def _check_key(node: Field, *, nullable: bool, in_list: bool) -> None:
    nullable = nullable or node.nullable
    if node.primary_key is not None:
        if nullable:
            raise InvalidInputError(
                "a primary key field and all fields around it must not be nullable", field=node.name
            )
        if not node.is_leaf or node.logical_type == logical_type.STRUCT:
            raise InvalidInputError("a primary key field must be a leaf", field=node.name)
        if in_list:
            raise InvalidInputError("a primary key field must not be in a list", field=node.name)
    in_list = in_list or node.logical_type != logical_type.STRUCT
    for child in node.children:
        _check_key(child, nullable=nullable, in_list=in_list)

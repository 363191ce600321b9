"""Schemas: trees of fields, and their serialized form.

A serialized schema is a list of fields, parents before children, and each field refers to its
parent by id:

    a: int32                 id 0  parent -1   int32
    s: struct<x: string>     id 1  parent -1   struct
                             id 2  parent  1   string
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lancelet.errors import (
    CorruptDataError,
    FieldNotFoundError,
    InvalidInputError,
    UnsupportedError,
    similar_names,
)
from lancelet.format import logical_type
from lancelet.format.field import (
    NO_ID,
    NO_PARENT,
    DictionaryLocation,
    Field,
    FieldId,
    check_primary_key,
    decode_metadata,
    decode_text,
    encode_metadata,
    encode_text,
)
from lancelet.format.field_path import format_path, parse_path
from lancelet.format.logical_type import Encoding
from lancelet.format.protos import file_pb
from lancelet.format.wire import unknown_fields
from lancelet.values import cached_property, dataclass, replace

__all__ = ["DictionaryLocation", "Encoding", "Field", "FieldId", "Schema"]

_CACHED_FIELDS_MAX: Final = 4096

_CACHED_SCHEMAS_MAX: Final = 16
"""Maximum number of Arrow schemas whose conversion is cached."""

_EXTENSION: Final = b"ARROW:extension:name"

_NESTING_MAX: Final = 100
_ENCODINGS: Final = {int(encoding): encoding for encoding in Encoding}


@dataclass(frozen=True)
class Schema:
    """The fields and the schema metadata of a table or file."""

    fields: tuple[Field, ...]
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __hash__(self) -> int:
        """Hash the fields, because schemas are cache keys."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.fields)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without cached values: hashes are only valid within a process."""
        return Schema, (self.fields, self.metadata)

    @staticmethod
    def from_arrow(arrow: pa.Schema, *, first_id: int = 0, blob_v2: bool = False) -> Schema:
        """Create a schema from an Arrow schema, assigning ids depth-first from `first_id`.

        Raises for ambiguous names, unsupported types and invalid primary keys. With `blob_v2`,
        binary fields that request blob encoding become blob structs, the storage of file versions
        2.2 and later.

        >>> Schema.from_arrow(pa.schema([("s", pa.struct([("x", pa.int8())]))])).max_field_id
        1
        """
        stored = arrow.serialize().to_pybytes()
        # An extension type may be registered later, so the serialized schema is not a safe cache
        # key.
        if first_id or _EXTENSION in stored:
            return _from_arrow(arrow, first_id, blob_v2=blob_v2)
        return _from_stored(_Stored(stored, arrow), blob_v2=blob_v2)

    @staticmethod
    def from_protos(
        protos: Iterable[file_pb.Field], metadata: Mapping[str, bytes] | None = None
    ) -> Schema:
        """Rebuild the tree of fields from a list of messages."""
        roots, children = _group_by_parent(list(protos))
        fields = tuple(_from_proto(proto, children, depth=0) for proto in roots)
        texts = {key: decode_text(value) for key, value in (metadata or {}).items()}
        return Schema(fields, texts)

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema that users see."""
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([node.to_arrow() for node in self.fields], encode_metadata(self.metadata))

    def to_protos(self) -> list[file_pb.Field]:
        """Return the fields as immutable shared messages, parents before children."""
        return [_to_proto(node) for node in self.walk()]

    def metadata_bytes(self) -> dict[str, bytes]:
        """Return the schema metadata as stored in messages."""
        return {key: encode_text(value) for key, value in self.metadata.items()}

    def walk(self) -> Iterator[Field]:
        """Yield every field depth-first, parents before children."""
        for node in self.fields:
            yield from node.walk()

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """The top-level fields by name; the first field wins if names repeat."""
        return {node.name: node for node in reversed(self.fields)}

    @cached_property
    def by_id(self) -> Mapping[int, Field]:
        """All fields by id; the first field wins if ids repeat."""
        fields: dict[int, Field] = {}
        for node in self.walk():
            fields.setdefault(node.id, node)
        return fields

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the top-level fields."""
        return tuple(node.name for node in self.fields)

    @property
    def max_field_id(self) -> int:
        """The highest field id, or -1 for an empty schema."""
        return max((node.id for node in self.walk()), default=-1)

    @property
    def primary_key(self) -> tuple[Field, ...]:
        """The fields of the unenforced primary key, in key order."""
        keys = [node for node in self.walk() if node.primary_key is not None]
        # Fields without a position follow those with one, in field order.
        return tuple(sorted(keys, key=lambda node: (not node.primary_key, node.primary_key or 0)))

    def field_by_id(self, field_id: int) -> Field:
        """Return the field with the given id."""
        node = self.by_id.get(field_id)
        if node is None:
            raise FieldNotFoundError("no field has this id", field_id=field_id)
        return node

    def field_by_path(self, path: str) -> Field:
        """Return the field at a dotted path."""
        return self.fields_on_path(path)[-1]

    def fields_on_path(
        self, path: str, *, folds_case: bool = False, passes_lists: bool = False
    ) -> tuple[Field, ...]:
        """Return the fields from the top level down to the one at the path.

        With `folds_case`, a unique name that differs only in case matches if no name is equal. With
        `passes_lists`, list elements may be omitted from the path.
        """
        chain: list[Field] = []
        siblings = self.fields
        for name in parse_path(path):
            if passes_lists and chain and chain[-1].is_list and siblings[0].name != name:
                chain.append(siblings[0])
                siblings = siblings[0].children
            # A table may have ten thousand columns, and a query may request all of them.
            by_name = {each.name: each for each in reversed(siblings)} if chain else self.by_name
            node = by_name.get(name)
            if node is None and folds_case:
                matches = [each for each in siblings if each.name.casefold() == name.casefold()]
                node = matches[0] if len(matches) == 1 else None
            if node is None:
                hint = similar_names(name, [sibling.name for sibling in siblings])
                raise FieldNotFoundError(
                    f"no field has this name{hint}",
                    column=path,
                    **({} if name == path else {"missing": name}),
                    available=[sibling.name for sibling in siblings][:100],
                )
            chain.append(node)
            siblings = node.children
        return tuple(chain)

    def path_of(self, field_id: int) -> str:
        """Return the path of the field with the given id."""
        names: list[str] = []
        ancestor_id = field_id
        while ancestor_id in self.by_id and len(names) <= _NESTING_MAX:
            names.append(self.by_id[ancestor_id].name)
            ancestor_id = self.by_id[ancestor_id].parent_id
        if not names:
            raise FieldNotFoundError("no field has this id", field_id=field_id)
        return format_path(names[::-1])

    def project(self, paths: Sequence[str]) -> Schema:
        """Return the fields at the paths with their ancestors, in the order of the paths.

        >>> schema = Schema.from_arrow(pa.schema([("a", pa.int8()), ("b", pa.int8())]))
        >>> schema.project(["b", "a"]).names
        ('b', 'a')
        """
        projected: dict[FieldId, Field] = {}
        for path in paths:
            chain = self.fields_on_path(path)
            part = chain[-1]
            for parent in reversed(chain[:-1]):
                part = parent.with_children((part,))
            existing = projected.get(part.id)
            projected[part.id] = part if existing is None else _union(existing, part)
        return Schema(tuple(projected.values()), self.metadata)

    def project_ids(self, field_ids: Collection[int]) -> Schema:
        """Return the fields with the given ids and their ancestors, in schema order.

        A field selected without any of its descendants retains all of them.
        """
        requested = frozenset(field_ids)
        projected = (_project_ids(node, requested) for node in self.fields)
        return Schema(tuple(node for node in projected if node is not None), self.metadata)

    def with_metadata(self, metadata: Mapping[str, str]) -> Schema:
        """Return the schema with other schema metadata."""
        return replace(self, metadata=dict(metadata))


class ColumnNameError(InvalidInputError, OSError, RuntimeError):
    """A column name is invalid."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """An Arrow schema that compares by its serialized form."""

    data: bytes
    arrow: pa.Schema = field(compare=False)


@lru_cache(_CACHED_SCHEMAS_MAX)
def _from_stored(stored: _Stored, *, blob_v2: bool) -> Schema:
    """Convert an Arrow schema, with a cache.

    Applications write many files with the same schema, and other caches use the schema as a key.
    """
    return _from_arrow(stored.arrow, 0, blob_v2=blob_v2)


def _from_arrow(arrow: pa.Schema, first_id: int, *, blob_v2: bool) -> Schema:
    ids = itertools.count(first_id)
    fields = tuple(Field.from_arrow(column, ids, blob_v2=blob_v2) for column in arrow)
    check_names(fields)
    check_nesting(fields)
    check_primary_key(fields)
    return Schema(fields, decode_metadata(arrow.metadata))


def check_names(fields: Sequence[Field]) -> None:
    """Raise if top-level names repeat or cannot be addressed by a path."""
    names: set[str] = set()
    for node in fields:
        if "." in node.name:
            raise ColumnNameError(
                "a top-level column name must not contain a dot; use a struct for nested fields",
                name=node.name,
            )
        if node.name in names:
            raise ColumnNameError("two columns share a name", name=node.name)
        names.add(node.name)


def check_nesting(fields: Sequence[Field]) -> None:
    """Raise if fields are nested deeper than readers support."""
    level, depth = list(fields), 0
    while level := [child for node in level for child in node.children]:
        depth += 1
        if depth > _NESTING_MAX:
            raise UnsupportedError(
                "a column exceeds the nesting limit of all file versions",
                field=level[0].name,
                most=_NESTING_MAX,
            )


def _union(first: Field, second: Field) -> Field:
    """Merge two projections of a field; a complete field includes all its children."""
    if not first.children or not second.children:
        return first
    parts = {child.id: child for child in first.children}
    for child in second.children:
        existing = parts.get(child.id)
        parts[child.id] = child if existing is None else _union(existing, child)
    return first.with_children(parts.values())


def _project_ids(node: Field, requested: frozenset[int]) -> Field | None:
    children = [
        part for child in node.children if (part := _project_ids(child, requested)) is not None
    ]
    if children:
        return node.with_children(children)
    return node if node.id in requested else None


def _group_by_parent(
    protos: list[file_pb.Field],
) -> tuple[list[file_pb.Field], dict[int, list[file_pb.Field]]]:
    """Return the top-level field messages, and the children of each parent."""
    roots: list[file_pb.Field] = []
    children: dict[int, list[file_pb.Field]] = {}
    parent_without_child_ids: file_pb.Field | None = None
    for proto in protos:
        if proto.id == NO_ID:
            # Data files list the children of a stored blob without ids, directly after the blob.
            if parent_without_child_ids is None:
                raise CorruptDataError("a field has no id", field=proto.name)
            children[parent_without_child_ids.id].append(proto)
            continue
        if proto.id in children:
            raise CorruptDataError("two fields share an id", field_id=proto.id, field=proto.name)
        children[proto.id] = []
        if proto.logical_type == logical_type.STRUCT:
            parent_without_child_ids = proto
        if proto.parent_id == NO_PARENT:
            roots.append(proto)
        elif proto.parent_id in children and proto.parent_id != proto.id:
            children[proto.parent_id].append(proto)
        else:
            raise CorruptDataError(
                f"Field '{proto.name}' (id={proto.id}) references parent id {proto.parent_id}, "
                "which does not come before it"
            )
    return roots, children


def _from_proto(
    proto: file_pb.Field, children: dict[int, list[file_pb.Field]], *, depth: int
) -> Field:
    if depth > _NESTING_MAX:
        raise CorruptDataError("a schema exceeds the nesting limit", field=proto.name)
    child_protos = children[proto.id] if proto.id != NO_ID else []
    dictionary = None
    if proto.HasField("dictionary"):
        dictionary = DictionaryLocation(proto.dictionary.offset, proto.dictionary.length)
    primary = proto.unenforced_primary_key_position
    clustering = proto.unenforced_clustering_key_position
    return Field(
        name=proto.name,
        id=FieldId(proto.id),
        logical_type=proto.logical_type,
        parent_id=FieldId(proto.parent_id),
        nullable=proto.nullable,
        children=(
            tuple([_from_proto(child, children, depth=depth + 1) for child in child_protos])
            if child_protos
            else ()
        ),
        metadata=_texts(proto.metadata),
        encoding=_encoding(proto.encoding),
        dictionary=dictionary,
        extension_name=proto.extension_name,
        primary_key=primary if primary or proto.unenforced_primary_key else None,
        clustering_key=clustering if clustering or proto.unenforced_clustering_key else None,
        unknown=unknown_fields(proto),
    )


def _texts(metadata: Mapping[str, bytes]) -> dict[str, str]:
    if not metadata:
        return {}
    return {key: decode_text(value) for key, value in metadata.items()}


def _encoding(number: int) -> Encoding:
    try:
        return _ENCODINGS[number]
    except KeyError:
        raise CorruptDataError("a field has an unknown encoding", encoding=number) from None


@lru_cache(_CACHED_FIELDS_MAX)
def _to_proto(node: Field) -> file_pb.Field:
    proto = file_pb.Field(
        name=node.name,
        id=node.id,
        parent_id=node.parent_id,
        logical_type=node.logical_type,
        nullable=node.nullable,
        encoding=file_pb.Encoding.Name(node.encoding),
        extension_name=node.extension_name,
        metadata={key: encode_text(value) for key, value in node.metadata.items()},
    )
    if node.dictionary is not None:
        proto.dictionary.offset = node.dictionary.offset
        proto.dictionary.length = node.dictionary.length
    if node.primary_key is not None:
        proto.unenforced_primary_key = True
        proto.unenforced_primary_key_position = node.primary_key
    if node.clustering_key is not None:
        proto.unenforced_clustering_key_position = node.clustering_key
    if node.unknown:
        proto.MergeFromString(node.unknown)
    return proto

"""Schemas with field ids, with the API of pylance's `LanceSchema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lancelet.errors import CorruptDataError, FieldNotFoundError, InvalidInputError
from lancelet.format.field import Field
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema
from lancelet.format.wire import parse_message


class LanceField:
    """A field of a schema, with its id."""

    def __init__(self, field: Field) -> None:
        """Wrap a field."""
        self._field = field

    def name(self) -> str:
        """Return the name."""
        return self._field.name

    def id(self) -> int:
        """Return the id, which does not change when the field is renamed."""
        return int(self._field.id)

    def children(self) -> list[LanceField]:
        """Return the child fields."""
        return [LanceField(child) for child in self._field.children]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the field."""
        return dict(self._field.metadata)

    def is_unenforced_primary_key(self) -> bool:
        """Return whether the field is part of the primary key."""
        return self._field.primary_key is not None

    def unenforced_primary_key_position(self) -> int | None:
        """Return the position in the primary key, or None."""
        return self._field.primary_key or None

    def is_unenforced_clustering_key(self) -> bool:
        """Return whether the field is part of the clustering key."""
        return self._field.clustering_key is not None

    def unenforced_clustering_key_position(self) -> int | None:
        """Return the position in the clustering key, or None."""
        return self._field.clustering_key or None

    def to_pyarrow(self) -> pa.Field:
        """Return the Arrow field."""
        return self._field.to_arrow()

    def __eq__(self, other: object) -> bool:
        """Compare all properties, including ids."""
        return isinstance(other, LanceField) and self._field == other._field

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash(self._field)

    def __repr__(self) -> str:
        """Show the field."""
        return f"LanceField({self._field!r})"


class LanceSchema:
    """A schema with field ids."""

    def __init__(self, schema: Schema) -> None:
        """Wrap a schema."""
        self._schema = schema

    @property
    def stored(self) -> Schema:
        """The internal schema."""
        return self._schema

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """Convert an Arrow schema; ids are assigned from 0."""
        return LanceSchema(Schema.from_arrow(schema))

    @staticmethod
    def _from_protos(metadata_json: str, *field_protos: bytes) -> LanceSchema:
        """Deserialize a schema that pylance pickled as protobuf fields."""
        try:
            metadata = {key: bytes(value) for key, value in json.loads(metadata_json).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                "schema metadata must be a JSON object of byte lists", found=metadata_json
            ) from error
        try:
            protos = [parse_message(file_pb.Field, message) for message in field_protos]
            return LanceSchema(Schema.from_protos(protos, metadata))
        except CorruptDataError as error:
            raise InvalidInputError(f"invalid schema fields: {error}") from error

    def to_pyarrow(self) -> pa.Schema:
        """Return the Arrow schema."""
        return self._schema.to_arrow()

    def fields(self) -> list[LanceField]:
        """Return the top-level fields."""
        return [LanceField(field) for field in self._schema.fields]

    def field(self, name: str) -> LanceField | None:
        """Return the field at a path, or None."""
        try:
            return LanceField(self._schema.field_by_path(name))
        except FieldNotFoundError:
            return None

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """Return the field at a case-insensitive path, or None."""
        for path, field in _paths(self._schema):
            if path.lower() == name.lower():
                return LanceField(field)
        return None

    def unenforced_primary_key(self) -> list[LanceField]:
        """Return the fields of the primary key, in its order."""
        return [LanceField(field) for field in self._schema.primary_key]

    def unenforced_clustering_key(self) -> list[LanceField]:
        """Return the fields of the clustering key, in its order."""
        keys = [field for field in self._schema.walk() if field.clustering_key is not None]
        return [
            LanceField(field) for field in sorted(keys, key=lambda key: key.clustering_key or 0)
        ]

    def __eq__(self, other: object) -> bool:
        """Compare all properties, including ids."""
        return isinstance(other, LanceSchema) and self._schema == other._schema

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash(self._schema.fields)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the internal schema."""
        return (LanceSchema, (self._schema,))

    def __repr__(self) -> str:
        """Show the fields."""
        fields = ", ".join(repr(field) for field in self._schema.fields)
        return f"Schema {{ fields: [{fields}], metadata: {dict(self._schema.metadata)} }}"


def _paths(schema: Schema) -> Iterator[tuple[str, Field]]:
    for field in schema.walk():
        yield schema.path_of(field.id), field

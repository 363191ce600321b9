"""Tables of Pydantic models: schemas of models, and vector types for fields.

For example:

    class Item(BaseModel):
        id: int
        name: str | None = None
        vector: Vector(8)

    pydantic_to_schema(Item)      id int64, name string or null, vector of 8 float32
"""

from __future__ import annotations

import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin

import numpy as np
import pyarrow as pa
import pydantic
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from lancelet.errors import InvalidInputError, UnsupportedError

_PLAIN: Final[Mapping[Any, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
    Decimal: pa.decimal128(38, 10),
}


class ModelTypeError(InvalidInputError, TypeError):
    """A value is not a Pydantic model or model class."""


class FixedSizeListMixin(ABC):
    """The base class of fixed-size list types."""

    @staticmethod
    @abstractmethod
    def dim() -> int:
        """Return the number of elements per value."""

    @staticmethod
    @abstractmethod
    def value_arrow_type() -> pa.DataType:
        """Return the type of the elements."""


def Vector(  # noqa: N802 - used as a type
    dim: int,
    value_type: pa.DataType = pa.float32(),  # noqa: B008 - a constant
    nullable: bool = True,
) -> type[FixedSizeListMixin]:
    """Return the type of vectors with a dimension."""
    return _vector_type(dim, value_type, nullable, is_many=False)


def MultiVector(  # noqa: N802 - used as a type
    dim: int,
    value_type: pa.DataType = pa.float32(),  # noqa: B008 - a constant
    nullable: bool = True,
) -> type[FixedSizeListMixin]:
    """Return the type of lists of vectors with a dimension."""
    return _vector_type(dim, value_type, nullable, is_many=True)


def get_extras(field: FieldInfo, key: str) -> Any:
    """Return the extra metadata of a field for a key, or None."""
    extra = field.json_schema_extra
    return extra.get(key) if isinstance(extra, dict) else None


def is_nullable(field: FieldInfo) -> bool:
    """Return whether the field accepts None."""
    # Fields of Pydantic 1 have other attributes for the type and record nullability.
    annotation = getattr(field, "annotation", None) or getattr(field, "outer_type_", None)
    if isinstance(annotation, type) and issubclass(annotation, FixedSizeListMixin):
        return bool(getattr(annotation, "nullable", lambda: True)())
    if hasattr(field, "allow_none"):
        return bool(field.allow_none)
    return type(None) in get_args(annotation) if _is_union(annotation) else False


def pydantic_to_schema(model: type[pydantic.BaseModel]) -> pa.Schema:
    """Return the Arrow schema of a model class."""
    return pa.schema(_fields(model))


def models_to_table(
    models: Any, kind: type[pydantic.BaseModel], schema: pa.Schema | None = None
) -> pa.Table:
    """Convert models to an Arrow table.

    Args:
        models: A list of models.
        kind: The class of the models; subclasses may have other fields.
        schema: The columns; by default those of the class.
    """
    check_models(models, kind)
    rows = [each.model_dump() for each in models]
    return pa.Table.from_pylist(rows, pydantic_to_schema(kind) if schema is None else schema)


def check_models(models: Any, kind: type[pydantic.BaseModel]) -> None:
    """Raise unless `models` is a list of instances of exactly this class."""
    if not isinstance(models, list):
        raise ModelTypeError(
            f"Pydantic model data must be provided as a list, got {type(models)!r}"
        )
    for number, each in enumerate(models):
        if type(each) is not kind:
            raise ModelTypeError(
                f"data[{number}] must be an instance of {kind!r} exactly (subclasses are not "
                f"accepted), got {type(each)!r} (data has {len(models)} items)"
            )


def _fields(model: type[pydantic.BaseModel]) -> list[pa.Field]:
    return [
        pa.field(name, _type_of_field(name, field), is_nullable(field))
        for name, field in model.model_fields.items()
    ]


def _type_of_field(name: str, field: FieldInfo) -> pa.DataType:
    found = _type_of(field.annotation, name)
    zone = get_extras(field, "tz")
    if zone is not None and pa.types.is_timestamp(found):
        return pa.timestamp(found.unit, zone)
    return found


def _type_of(annotation: Any, name: str) -> pa.DataType:
    if _is_union(annotation):
        members = [each for each in get_args(annotation) if each is not type(None)]
        if len(members) != 1:
            raise UnsupportedError(
                "a field must have one type", field=name, types=list(map(str, members))
            )
        return _type_of(members[0], name)
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        return _type_of(get_args(annotation)[0], name)
    if origin is Literal:
        return pa.array(list(get_args(annotation))).type
    if origin in {list, Sequence, tuple, set}:
        members = [each for each in get_args(annotation) if each is not Ellipsis]
        if len(set(members)) == 1:
            return pa.list_(_type_of(members[0], name))
    if not isinstance(annotation, type):
        raise UnsupportedError("unsupported field type", field=name, type=str(annotation))
    if issubclass(annotation, FixedSizeListMixin):
        vector = pa.list_(annotation.value_arrow_type(), annotation.dim())
        return pa.list_(vector) if getattr(annotation, "is_many", False) else vector
    if issubclass(annotation, pydantic.BaseModel):
        return pa.struct(_fields(annotation))
    if issubclass(annotation, Enum):
        values = pa.array([each.value for each in annotation])
        is_text = pa.types.is_string(values.type)
        return pa.dictionary(pa.int32(), pa.string()) if is_text else values.type
    for kind in annotation.__mro__:
        if kind in _PLAIN:
            return _PLAIN[kind]
    raise UnsupportedError("unsupported field type", field=name, type=annotation.__name__)


def _vector_type(
    dimension: int, value_type: pa.DataType, nullable_: bool, *, is_many: bool
) -> type[FixedSizeListMixin]:
    if dimension < 1:
        raise InvalidInputError("the dimension of a vector must be at least 1", dim=dimension)

    class FixedSizeList(list[Any], FixedSizeListMixin):
        """Vectors of a fixed dimension."""

        @staticmethod
        def dim() -> int:
            """Return the number of elements per value."""
            return dimension

        @staticmethod
        def value_arrow_type() -> pa.DataType:
            """Return the type of the elements."""
            return value_type

        @staticmethod
        def nullable() -> bool:
            """Return whether vectors may be null."""
            return nullable_

        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
            one = core_schema.list_schema(
                core_schema.float_schema(), min_length=dimension, max_length=dimension
            )
            whole = core_schema.list_schema(one) if is_many else one
            return core_schema.no_info_before_validator_function(_as_list, whole)

    FixedSizeList.is_many = is_many  # type: ignore[attr-defined]  # read by `_type_of`
    FixedSizeList.__name__ = f"{'MultiVector' if is_many else 'Vector'}({dimension})"
    return FixedSizeList


def _as_list(given: Any) -> Any:
    return given.tolist() if isinstance(given, np.ndarray) else given


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, types.UnionType}

"""The assignment of fields to columns, cached by schema.

    schema       a: int32, s: struct<x: string, y: int8>
    2.1          field   first column   columns
                 a       0              1
                 s       1              2

Tables write many files with the same schema, and visiting all fields takes longer than writing a
few rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from lancelet.encodings.base import FileVersion
from lancelet.file.v2.generation import assign_columns, column_encodings, columns_of, is_plain
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.values import dataclass

_CACHED_SCHEMAS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class FieldPlan:
    """The columns of a top-level field."""

    field: Field
    first_column: int
    num_columns: int
    has_blobs: bool
    is_plain: bool
    """Whether the field can be encoded together with others."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPlan:
    """The columns of a file, by field and by field id, and the encoding of each column."""

    fields: tuple[FieldPlan, ...]
    placement: Mapping[int, int]
    encodings: tuple[bytes, ...]


@lru_cache(_CACHED_SCHEMAS)
def plan_columns(schema: Schema, version: FileVersion) -> ColumnPlan:
    """Return the columns of a file with the given schema and version."""
    plans: list[FieldPlan] = []
    encodings: list[bytes] = []
    for field in schema.fields:
        count = len(columns_of(field, version))
        has_blobs = any(part.is_blob for part in field.walk())
        plan = FieldPlan(field, len(encodings), count, has_blobs, is_plain(field, version))
        plans.append(plan)
        encodings += column_encodings(field, version)
    placement = assign_columns(schema.fields, version)
    return ColumnPlan(tuple(plans), placement, tuple(encodings))

"""How the fields of a schema become the columns of a file: found out once per schema.

    schema       a: int32, s: struct<x: string, y: int8>
    2.1          field   first column   columns
                 a       0              1
                 s       1              2

A table gets file after file of the same schema, and ten rows are written in less time than it
takes to go through all fields again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from lancelet.encodings.base import FileVersion
from lancelet.file.v2.generation import column_encodings, columns_of, kind_of, place_columns
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.values import dataclass

_SCHEMAS_KEPT: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class FieldPlan:
    """The columns of a top-level field."""

    field: Field
    first_column: int
    num_columns: int
    has_blobs: bool
    kind: str | None
    """What it has in common with fields that are encoded together with it."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPlan:
    """The columns of a file: of each field, by the ids of fields that own one, and in order."""

    fields: tuple[FieldPlan, ...]
    placement: Mapping[int, int]
    encodings: tuple[bytes, ...]


@lru_cache(_SCHEMAS_KEPT)
def plan_columns(schema: Schema, version: FileVersion) -> ColumnPlan:
    """Return the columns of the fields of a schema in a file of a version."""
    plans: list[FieldPlan] = []
    encodings: list[bytes] = []
    for field in schema.fields:
        count = len(columns_of(field, version))
        has_blobs = any(part.is_blob for part in field.walk())
        kind = kind_of(field, version)
        plans.append(FieldPlan(field, len(encodings), count, has_blobs, kind))
        encodings += column_encodings(field, version)
    placement = place_columns(schema.fields, version)
    return ColumnPlan(tuple(plans), placement, tuple(encodings))

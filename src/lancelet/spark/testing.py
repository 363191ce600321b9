"""Conversion of Spark schemas to Arrow by Spark itself, in any release, for tests."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def exact_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark compares the first batch of a source with."""
    # Releases before 4.3 take no zone, and mean UTC.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **zone)

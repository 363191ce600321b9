"""Schemas with field ids, and schemas as JSON. Mirrors the pylance module of this name."""

from lancelet.dataset.write.schema import LanceField, LanceSchema
from lancelet.format.schema_json import json_to_schema, schema_to_json

__all__ = ["LanceField", "LanceSchema", "json_to_schema", "schema_to_json"]

"""An index of another kind over the values at one place of JSON documents."""

from lancelet.index.scalar.json_path.kind import JsonPath

__all__ = ["JsonPath"]

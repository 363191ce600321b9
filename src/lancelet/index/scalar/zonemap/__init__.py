"""The smallest and greatest value of each zone of rows."""

from lancelet.index.scalar.zonemap.kind import ZoneMap

__all__ = ["ZoneMap"]

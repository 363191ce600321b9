"""A set of rows for each distinct element of lists."""

from lancelet.index.scalar.label_list.kind import LabelList

__all__ = ["LabelList"]

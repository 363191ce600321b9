"""The functions available in expressions, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lancelet.expr.functions.arithmetic import CHOICE_FUNCTIONS, NUMBER_FUNCTIONS
from lancelet.expr.functions.base import Function
from lancelet.expr.functions.collections import COLLECTION_FUNCTIONS
from lancelet.expr.functions.documents import JSON_FUNCTIONS
from lancelet.expr.functions.each_value import VALUE_FUNCTIONS
from lancelet.expr.functions.geometry import GEOMETRY_FUNCTIONS
from lancelet.expr.functions.lists import LIST_FUNCTIONS
from lancelet.expr.functions.text import REGEXP_FUNCTIONS, TEXT_FUNCTIONS
from lancelet.expr.functions.times import TIME_FUNCTIONS

ALL_FUNCTIONS: Final[tuple[Function, ...]] = (
    *TEXT_FUNCTIONS,
    *REGEXP_FUNCTIONS,
    *NUMBER_FUNCTIONS,
    *CHOICE_FUNCTIONS,
    *TIME_FUNCTIONS,
    *LIST_FUNCTIONS,
    *JSON_FUNCTIONS,
    *GEOMETRY_FUNCTIONS,
    *VALUE_FUNCTIONS,
    *COLLECTION_FUNCTIONS,
)
"""All functions, without duplicates."""

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {name: function for function in ALL_FUNCTIONS for name in function.names}
)
"""All functions by each of their names."""

assert len(FUNCTIONS) == sum(len(function.names) for function in ALL_FUNCTIONS), (
    "duplicate function name"
)

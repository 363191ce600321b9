"""A bound expression together with its type."""

from __future__ import annotations

import pyarrow as pa

from lancelet.query.expression import Expression
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound expression and the type it computes."""

    expression: Expression
    data_type: pa.DataType

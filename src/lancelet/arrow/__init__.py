"""Arrow extension types of Lance: bfloat16 numbers."""

from lancelet.arrow.bfloat16 import (
    BFloat16,
    BFloat16Array,
    BFloat16Scalar,
    BFloat16Type,
    bfloat16_array,
    cast,
    register,
)

register()

__all__ = [
    "BFloat16",
    "BFloat16Array",
    "BFloat16Scalar",
    "BFloat16Type",
    "bfloat16_array",
    "cast",
]

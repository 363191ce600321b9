"""Arrow extension types of Lance: bfloat16 numbers, and images."""

from typing import Any

from lancelet.arrow.bfloat16 import (
    BFloat16,
    BFloat16Array,
    BFloat16Scalar,
    BFloat16Type,
    bfloat16_array,
    cast,
)
from lancelet.arrow.images import (
    EncodedImageArray,
    EncodedImageScalar,
    EncodedImageType,
    FixedShapeImageTensorArray,
    FixedShapeImageTensorScalar,
    FixedShapeImageTensorType,
    ImageArray,
    ImageScalar,
    ImageURIArray,
    ImageURIScalar,
    ImageURIType,
)
from lancelet.arrow.registration import register

register()

__all__ = [
    "BFloat16",
    "BFloat16Array",
    "BFloat16Scalar",
    "BFloat16Type",
    "EncodedImageArray",
    "EncodedImageScalar",
    "EncodedImageType",
    "FixedShapeImageTensorArray",
    "FixedShapeImageTensorScalar",
    "FixedShapeImageTensorType",
    "ImageArray",
    "ImageScalar",
    "ImageURIArray",
    "ImageURIScalar",
    "ImageURIType",
    "PandasBFloat16Array",
    "bfloat16_array",
    "cast",
]


def __getattr__(name: str) -> Any:
    if name == "PandasBFloat16Array":
        from lancelet.arrow import pandas_bfloat16  # noqa: PLC0415 - it needs pandas

        return pandas_bfloat16.PandasBFloat16Array
    raise AttributeError(name)

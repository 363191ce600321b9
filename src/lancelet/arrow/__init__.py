"""Arrow extension types of Lance: bfloat16 numbers and images."""

# ruff: noqa: TC004 - the pandas classes are imported lazily; this import is for type checkers

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

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
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.arrow.pandas_bfloat16 import PandasBFloat16Array

register()
if find_spec("pandas") is not None:
    # Registers the dtype with pandas.
    import_module("lancelet.arrow.pandas_bfloat16")

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

import_on_demand(__name__, {"PandasBFloat16Array": "lancelet.arrow.pandas_bfloat16"})

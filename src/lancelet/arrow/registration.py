"""Making Arrow know the types of Lance."""

import pyarrow as pa

from lancelet.arrow.bfloat16 import BFloat16Type
from lancelet.arrow.images import EncodedImageType, FixedShapeImageTensorType, ImageURIType


def register() -> None:
    """Make Arrow know the types, each unless another library has registered it already."""
    for data_type in (
        BFloat16Type(),
        ImageURIType(),
        EncodedImageType(),
        FixedShapeImageTensorType(pa.uint8(), (0,)),
    ):
        try:
            pa.register_extension_type(data_type)
        except pa.ArrowKeyError:
            # Another reader of Lance in this process was first; its type means the same.
            continue

"""Registration of the extension types with pyarrow."""

import pyarrow as pa

from lancelet.arrow.bfloat16 import BFloat16Type
from lancelet.arrow.images import EncodedImageType, FixedShapeImageTensorType, ImageURIType


def register() -> None:
    """Register the extension types that are not yet registered by another library."""
    for data_type in (
        BFloat16Type(),
        ImageURIType(),
        EncodedImageType(),
        FixedShapeImageTensorType(pa.uint8(), (0,)),
    ):
        try:
            pa.register_extension_type(data_type)
        except pa.ArrowKeyError:
            # Already registered by pylance, with the same meaning.
            continue

"""Numbers of bfloat16, under pylance's name for the module."""

from lancelet.arrow import BFloat16, BFloat16Array, BFloat16Scalar, BFloat16Type, bfloat16_array
from lancelet.on_demand import import_on_demand

__all__ = ["BFloat16", "BFloat16Array", "BFloat16Scalar", "BFloat16Type", "bfloat16_array"]

import_on_demand(
    __name__,
    {
        "PandasBFloat16Array": "lancelet.arrow.pandas_bfloat16",
        "PandasBFloat16Type": "lancelet.arrow.pandas_bfloat16",
    },
)

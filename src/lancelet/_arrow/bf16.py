"""Numbers of bfloat16, under pylance's name for the module."""

from lancelet.arrow import BFloat16, BFloat16Array, BFloat16Scalar, BFloat16Type, bfloat16_array

__all__ = ["BFloat16", "BFloat16Array", "BFloat16Scalar", "BFloat16Type", "bfloat16_array"]

"""interim"""

from __future__ import annotations
from dataclasses import dataclass
import pyarrow as pa
from lancelet.encodings.base import *
from lancelet.encodings.codecs.base import *
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.packed_struct import PackedStruct
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking


def has_variable(b):
    return isinstance(b, Fields) and any(
        isinstance(c, Variable) or isinstance(c, FixedSizeList) for c in b.children
    )


def wants_full_zip(block):
    if has_variable(block):
        return True
    if isinstance(block, Fields):
        return False
    if isinstance(block, Variable):
        return block.count and int((block.offsets[1:] - block.offsets[:-1]).max()) >= 256
    w = 1
    b = block
    while isinstance(b, FixedSizeList):
        w *= b.dimension
        b = b.items
    return b.bits * w // 8 >= 256


def codec_for(block, full_zip):
    if isinstance(block, FixedSizeList):
        return FixedSizeListCodec()
    if isinstance(block, Variable):
        return VariableCodec()
    if isinstance(block, Fields):
        return VariablePackedStruct() if full_zip else PackedStruct()
    return InlineBitpacking() if block.bits in (16, 32) and not full_zip else Flat()

"""A checksum behind bytes that have none of their own, where other readers skip it.

    message        08 01 12 03 ...
    sealed         08 01 12 03 ...  8D D0 AC F3 0E  <CRC-32C of what is before>

To a reader of protobuf the nine bytes are a field that it does not know; one of a bitmap or of a
stream stops where that ends. Writers that change a message drop the field, so bytes without it
are not verified. A tag of five bytes is there by accident once in a million million messages.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
from lancelet.errors import CorruptDataError
from lancelet.kernels import crc32c

_FIELD: Final = 500_000_001
_FIXED32: Final = 5
_SUM: Final = struct.Struct("<I")


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, lowest first."""
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(groups) + bytes([number])


_TAG: Final = _varint(_FIELD << 3 | _FIXED32)
SEAL_BYTES: Final = len(_TAG) + _SUM.size


def seal_of(*parts: Bytes) -> bytes:
    """Return what goes behind parts that follow each other."""
    total = 0
    for part in parts:
        total = crc32c(part, total)
    return _TAG + _SUM.pack(total)


def sealed(data: bytes) -> bytes:
    """Return bytes with their seal."""
    return data + seal_of(np.frombuffer(data, np.uint8))


def is_sealed(data: Bytes) -> bool:
    """Return whether bytes end with a seal."""
    return data[-SEAL_BYTES : -_SUM.size].tobytes() == _TAG


def unsealed(data: Bytes) -> Bytes:
    """Return bytes without their seal, if they have one and are what was sealed.

    >>> unsealed(np.frombuffer(sealed(b"lance"), np.uint8)).tobytes()
    b'lance'
    """
    if not is_sealed(data):
        return data
    content = data[:-SEAL_BYTES]
    (expected,) = _SUM.unpack(data[-_SUM.size :].data)
    found = crc32c(content)
    if found != expected:
        raise CorruptDataError(
            "the bytes are not those that were written",
            expected_crc32c=f"{expected:08x}",
            found_crc32c=f"{found:08x}",
            checked_bytes=len(content),
        )
    return content

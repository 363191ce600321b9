"""A checksum behind bytes that have none of their own, where other readers skip it.

    message        08 01 12 03 ...
    sealed         08 01 12 03 ...  8D D0 AC F3 0E  <CRC-32C of what is before>

To a reader of protobuf the nine bytes are a field that it does not know; one of a bitmap or of a
stream stops where that ends. Writers that change a message drop the field, so bytes without it
are not verified. A tag of five bytes is there by accident once in a million million messages.

In the same way a file of a table says which name it was given, by a checksum of the name, so that
another file that is copied over it is told from it, though it has the same size.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
from lancelet.errors import CorruptDataError
from lancelet.kernels import crc32c

_FIELD: Final = 500_000_001
_NAME_FIELD: Final = 500_000_002
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
_NAME_TAG: Final = _varint(_NAME_FIELD << 3 | _FIXED32)


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


def name_checksum(name: str) -> int:
    """Return what a file keeps of the name that it was given."""
    return crc32c(np.frombuffer(name.encode(), np.uint8))


def named(data: bytes, name: str | None) -> bytes:
    """Return bytes that say which name their file was given, if it was given one."""
    return data if name is None else data + _NAME_TAG + _SUM.pack(name_checksum(name))


def unnamed(data: bytes) -> tuple[bytes, int | None]:
    """Return bytes without the checksum of a name, and that, or None if they keep none.

    >>> unnamed(named(b"lance", "a.lance")) == (b"lance", name_checksum("a.lance"))
    True
    """
    end = len(data) - len(_NAME_TAG) - _SUM.size
    if end < 0 or not data.startswith(_NAME_TAG, end):
        return data, None
    (found,) = _SUM.unpack_from(data, end + len(_NAME_TAG))
    return data[:end], found


def check_name(found: int | None, name: str) -> None:
    """Raise if a file keeps a name, and it is another one.

    Raises:
        CorruptDataError: The file is another one.
    """
    if found not in {None, name_checksum(name)}:
        raise CorruptDataError(
            "the file was written under another name, so it is not the one that is meant; was "
            "another one copied over it? restore it",
            name=name,
        )

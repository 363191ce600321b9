"""Checksum trailers of structures without a checksum, in a form that other readers ignore.

    message        08 01 12 03 ...
    with trailer   08 01 12 03 ...  8D D0 AC F3 0E  <CRC-32C of the preceding bytes>

Protobuf readers treat the nine bytes as an unknown field; readers of bitmaps and streams stop
before them. Writers that modify a message drop the field, so bytes without a trailer are not
verified. The five-byte tag occurs by chance in one of 10^12 messages.

Files also store a checksum of their name in the same form. It detects a file that was overwritten
with another one, even of the same size.
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
    """Encode a number as a protobuf varint."""
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(groups) + bytes([number])


_TAG: Final = _varint(_FIELD << 3 | _FIXED32)
TRAILER_BYTES: Final = len(_TAG) + _SUM.size
_NAME_TAG: Final = _varint(_NAME_FIELD << 3 | _FIXED32)


def checksum_trailer(*parts: Bytes) -> bytes:
    """Return the checksum trailer of consecutive buffers."""
    total = 0
    for part in parts:
        total = crc32c(part, total)
    return _TAG + _SUM.pack(total)


def with_trailer(data: bytes) -> bytes:
    """Return bytes with their checksum trailer appended."""
    return data + checksum_trailer(np.frombuffer(data, np.uint8))


def has_trailer(data: Bytes) -> bool:
    """Return whether bytes end with a checksum trailer."""
    return data[-TRAILER_BYTES : -_SUM.size].tobytes() == _TAG


def strip_trailer(data: Bytes) -> Bytes:
    """Return bytes without their checksum trailer, if any. Raise if the checksum does not match.

    >>> strip_trailer(np.frombuffer(with_trailer(b"lance"), np.uint8)).tobytes()
    b'lance'
    """
    if not has_trailer(data):
        return data
    content = data[:-TRAILER_BYTES]
    (stored,) = _SUM.unpack(data[-_SUM.size :].data)
    computed = crc32c(content)
    if computed != stored:
        raise CorruptDataError(
            "the content does not match its checksum",
            expected_crc32c=f"{stored:08x}",
            found_crc32c=f"{computed:08x}",
            checked_bytes=len(content),
        )
    return content


def name_checksum(name: str) -> int:
    """Return the checksum of a file name."""
    return crc32c(np.frombuffer(name.encode(), np.uint8))


def with_name_checksum(data: bytes, name: str | None) -> bytes:
    """Append the checksum of the file name, if one is given."""
    return data if name is None else data + _NAME_TAG + _SUM.pack(name_checksum(name))


def split_name_checksum(data: bytes) -> tuple[bytes, int | None]:
    """Split off the optional checksum of the file name.

    >>> split_name_checksum(with_name_checksum(b"lance", "a.lance"))[0]
    b'lance'
    """
    end = len(data) - len(_NAME_TAG) - _SUM.size
    if end < 0 or not data.startswith(_NAME_TAG, end):
        return data, None
    (stored,) = _SUM.unpack_from(data, end + len(_NAME_TAG))
    return data[:end], stored


def check_name(stored: int | None, name: str) -> None:
    """Raise if a file was written under another name.

    Raises:
      CorruptDataError: If the stored checksum of the name does not match.
    """
    if stored not in {None, name_checksum(name)}:
        raise CorruptDataError(
            "the file was written under another name; another file may have been copied over "
            "it: restore the original file",
            name=name,
        )

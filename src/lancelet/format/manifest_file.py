"""The manifest file: sections, the manifest, and a footer with the manifest position.

    0      dictionary values, in tables of 0.1 files only
    ..     u32 size + index section            if the version has indices
    ..     u32 size + transaction              the committed transaction
    p      u32 size + manifest                 ends 16 bytes before the end of the file
    -16    u64 p, u16 0, u16 2, "LANC"

The manifest records the positions of the two preceding sections; 0 is a valid position. One read of
the tail suffices for most tables. Sections written by this library end with a checksum trailer,
which is verified on every read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field
from typing import Final

import numpy as np

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, ReadCoroutine, run
from lancelet.errors import CorruptDataError
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import (
    Manifest,
    Outline,
    SectionPositions,
    parse_auxiliary_data,
    parse_manifest,
    parse_outline,
    render_manifest,
)
from lancelet.format.trailer import checksum_trailer, has_trailer, strip_trailer, with_trailer
from lancelet.format.transaction import Transaction
from lancelet.values import dataclass

TAIL_BYTES: Final = 64 * 1024
"""Size of the first read at the end of the file."""

_FOOTER: Final = struct.Struct("<QHH4s")
_SIZE: Final = struct.Struct("<I")
_MAGIC: Final = b"LANC"
_FOOTER_VERSION: Final = (0, 2)


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest read from a file, with the positions of the file's sections."""

    manifest: Manifest
    positions: SectionPositions
    position: int
    file_bytes: int
    indices: list[IndexSection] = field(default_factory=list, compare=False, repr=False)
    """The cached index section; its memory use is estimated from the file size."""


def read_manifest(file_bytes: int) -> ReadCoroutine[StoredManifest]:
    """Read the manifest of a file in one round of requests, or two if it exceeds the tail."""
    message, position = yield from _read_message(file_bytes)
    manifest, positions = parse_manifest(message)
    _check_positions(positions, position)
    return StoredManifest(manifest, positions, position, file_bytes)


def read_outline(data: Bytes) -> tuple[Outline, IndexSection]:
    """Parse the outline and the index section of a manifest file in memory."""
    position = _parse_footer(data, len(data))
    outline, positions = parse_outline(_parse_section(data[position : len(data) - _FOOTER.size]))
    _check_positions(positions, position)
    if positions.index is None:
        return outline, IndexSection()

    def fetch(requested: ByteRanges) -> ByteSlices:
        return ByteSlices(data, requested.position, requested.size)

    section = run(_read_section(positions.index, positions, position, len(data)), fetch)
    return outline, IndexSection() if section is None else IndexSection.parse(section.data)


def _read_message(file_bytes: int) -> ReadCoroutine[tuple[Bytes, int]]:
    """Read the serialized manifest of a file, and return its position."""
    tail_bytes = min(file_bytes, TAIL_BYTES)
    slices = yield ByteRanges.of((file_bytes - tail_bytes, tail_bytes))
    tail = slices.slice_bytes(0)
    position = _parse_footer(tail, file_bytes)
    message_bytes = file_bytes - _FOOTER.size - position
    if message_bytes > tail_bytes - _FOOTER.size:
        slices = yield ByteRanges.of((position, message_bytes))
        section = slices.slice_bytes(0)
    else:
        section = tail[len(tail) - _FOOTER.size - message_bytes : len(tail) - _FOOTER.size]
    return _parse_section(section), position


def _parse_section(section: Bytes) -> Bytes:
    """Return the serialized manifest from the bytes between its position and the footer."""
    (size,) = _SIZE.unpack(section[: _SIZE.size].data)
    if size != len(section) - _SIZE.size:
        raise CorruptDataError(
            "the manifest does not end at the footer",
            expected_bytes=len(section) - _SIZE.size,
            found_bytes=size,
        )
    return strip_trailer(section[_SIZE.size :])


def _check_positions(positions: SectionPositions, position: int) -> None:
    """Raise unless the other sections precede the manifest."""
    for section_position in (positions.index, positions.transaction):
        if section_position is not None and section_position >= position:
            raise CorruptDataError(
                "a section of the manifest file starts after the manifest",
                position=section_position,
            )


def read_indices(stored: StoredManifest) -> ReadCoroutine[IndexSection]:
    """Read the index section of a manifest file and cache it; empty if the file has none."""
    section = yield from _read_section(
        stored.positions.index, stored.positions, stored.position, stored.file_bytes
    )
    indices = IndexSection() if section is None else IndexSection.parse(section.data)
    stored.indices[:] = [indices]
    return indices


def read_transaction(stored: StoredManifest) -> ReadCoroutine[Transaction | None]:
    """Read the transaction of a manifest file, or return None."""
    section = yield from _read_section(
        stored.positions.transaction, stored.positions, stored.position, stored.file_bytes
    )
    return None if section is None else Transaction.parse(section.data)


def read_auxiliary_data(stored: StoredManifest) -> ReadCoroutine[dict[str, bytes]]:
    """Read the auxiliary data of a version, or return an empty dictionary."""
    section = yield from _read_section(
        stored.manifest.version_aux_data or None,
        stored.positions,
        stored.position,
        stored.file_bytes,
    )
    return {} if section is None else parse_auxiliary_data(section)


def parse_manifest_file(data: Bytes) -> StoredManifest:
    """Parse a manifest file in memory."""
    return run(
        read_manifest(len(data)), lambda ranges: ByteSlices(data, ranges.position, ranges.size)
    )


def render_manifest_file(
    manifest: Manifest,
    indices: IndexSection,
    transaction: Transaction | None,
    *,
    dictionary_values: bytes = b"",
) -> bytes:
    """Serialize a manifest file like the reference, without checksum trailers."""
    section = indices.render() if indices.indices or indices.unknown else None
    rendered = None if transaction is None else transaction.render()
    return _join(manifest, section, rendered, dictionary_values)[0]


def write_manifest_file(
    manifest: Manifest,
    indices: IndexSection,
    transaction: bytes | None,
    *,
    dictionary_values: bytes = b"",
) -> tuple[bytes, StoredManifest]:
    """Serialize a manifest file with checksum trailers; also return its parsed form.

    `transaction` is serialized and has a trailer, as in a separate transaction file.
    `dictionary_values` is written at the start of the file, to which the schema's dictionary
    locations refer.
    """
    section = with_trailer(indices.render()) if indices.indices or indices.unknown else None
    return _join(manifest, section, transaction, dictionary_values, checksum_trailer)


def _join(
    manifest: Manifest,
    indices: bytes | None,
    transaction: bytes | None,
    dictionary_values: bytes,
    make_trailer: Callable[[Bytes, Bytes], bytes] = lambda _head, _fragments: b"",
) -> tuple[bytes, StoredManifest]:
    """Join the sections, the manifest and its trailer into a file; also return its parsed form."""
    buffers: list[bytes | memoryview] = [dictionary_values]
    position = len(dictionary_values)
    section_positions: list[int | None] = []
    for section in (indices, transaction):
        section_positions.append(None if section is None else position)
        if section is not None:
            buffers += [_SIZE.pack(len(section)), section]
            position += _SIZE.size + len(section)
    positions = SectionPositions(*section_positions)
    head, fragments = render_manifest(manifest, positions)
    fragments = np.ascontiguousarray(fragments)
    trailer = make_trailer(np.frombuffer(head, np.uint8), fragments)
    size = len(head) + len(fragments) + len(trailer)
    buffers += [_SIZE.pack(size), head, fragments.data, trailer]
    buffers.append(_FOOTER.pack(position, *_FOOTER_VERSION, _MAGIC))
    data = b"".join(buffers)
    return data, StoredManifest(manifest, positions, position, len(data))


def _parse_footer(tail: Bytes, file_bytes: int) -> int:
    """Return the position of the manifest."""
    if len(tail) < _FOOTER.size + _SIZE.size:
        raise CorruptDataError("the file is too short for a manifest", file_bytes=file_bytes)
    position, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :].data)
    if magic != _MAGIC:
        raise CorruptDataError(
            "the file does not end with a manifest footer; was it truncated?", found=magic.hex()
        )
    if position > file_bytes - _FOOTER.size - _SIZE.size:
        raise CorruptDataError(
            "the manifest position exceeds the file size; was the file truncated by a copy?",
            position=position,
            file_bytes=file_bytes,
        )
    return int(position)


def _read_section(
    position: int | None, positions: SectionPositions, end: int, file_bytes: int
) -> ReadCoroutine[Bytes | None]:
    """Read the section at `position`; it must end before the next section.

    All sections end before `end`, the position of the manifest.
    """
    if position is None:
        return None
    section_starts = (positions.index, positions.transaction, end)
    stop = min(start for start in section_starts if start is not None and start > position)
    slices = yield ByteRanges.of((position, stop - position))
    section = slices.slice_bytes(0)
    size = int.from_bytes(section[: _SIZE.size].data, "little")
    if size > len(section) - _SIZE.size or (
        has_trailer(section) and size + _SIZE.size < len(section)
    ):
        raise CorruptDataError(
            "a section of the manifest file overlaps the next one",
            position=position,
            section_bytes=size,
            file_bytes=file_bytes,
        )
    return strip_trailer(section[_SIZE.size : _SIZE.size + size])

"""The file of a manifest: sections, the message, and a footer that says where it starts.

    0      dictionary values, in tables of 0.1 files only
    ..     u32 size + index section            if the version has indices
    ..     u32 size + transaction              what was committed
    p      u32 size + manifest                 up to 16 bytes before the end
    -16    u64 p, u16 0, u16 2, "LANC"

The manifest names the positions of the two sections before it, where 0 is a position like any
other. One read of the tail is enough for most tables. Each of the three ends with a seal if we
wrote it, which is verified whenever it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Ranges, Reading, Slices, run
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
from lancelet.format.seal import is_sealed, seal_of, sealed, unsealed
from lancelet.format.transaction import Transaction
from lancelet.values import dataclass

TAIL_BYTES: Final = 64 * 1024
"""How much of the end a reader fetches first."""

_FOOTER: Final = struct.Struct("<QHH4s")
_SIZE: Final = struct.Struct("<I")
_MAGIC: Final = b"LANC"
_FOOTER_VERSION: Final = (0, 2)


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest that was read from a file, and where the sections of that file are."""

    manifest: Manifest
    positions: SectionPositions
    position: int
    file_bytes: int
    indices: list[IndexSection] = field(default_factory=list, compare=False, repr=False)
    """The index section, once it was read; the size of the file tells what it takes in memory."""


def read_manifest(file_bytes: int) -> Reading[StoredManifest]:
    """Read the manifest of a file: one round, and a second if it is longer than the tail."""
    message, position = yield from _read_message(file_bytes)
    manifest, positions = parse_manifest(message)
    _check_positions(positions, position)
    return StoredManifest(manifest, positions, position, file_bytes)


def read_outline(data: Bytes) -> tuple[Outline, IndexSection]:
    """Return what a manifest's file, which is in memory, says of other files."""

    def fetch(wanted: Ranges) -> Slices:
        return Slices(data, wanted.position, wanted.size)

    message, position = run(_read_message(len(data)), fetch)
    outline, positions = parse_outline(message)
    _check_positions(positions, position)
    section = run(_read_section(positions.index, positions, position, len(data)), fetch)
    return outline, IndexSection() if section is None else IndexSection.parse(section.data)


def _read_message(file_bytes: int) -> Reading[tuple[Bytes, int]]:
    """Read the message of the manifest in a file, and find where it is."""
    tail_bytes = min(file_bytes, TAIL_BYTES)
    slices = yield Ranges.of((file_bytes - tail_bytes, tail_bytes))
    tail = slices.slice_bytes(0)
    position = _parse_footer(tail, file_bytes)
    wanted = file_bytes - _FOOTER.size - position
    if wanted > tail_bytes - _FOOTER.size:
        slices = yield Ranges.of((position, wanted))
        section = slices.slice_bytes(0)
    else:
        section = tail[len(tail) - _FOOTER.size - wanted : len(tail) - _FOOTER.size]
    (size,) = _SIZE.unpack(section[: _SIZE.size].data)
    if size != wanted - _SIZE.size:
        raise CorruptDataError(
            "the manifest does not end where the footer starts",
            expected_bytes=wanted - _SIZE.size,
            found_bytes=size,
        )
    return unsealed(section[_SIZE.size :]), position


def _check_positions(positions: SectionPositions, position: int) -> None:
    """Raise unless the other sections of a file begin before its manifest."""
    for place in (positions.index, positions.transaction):
        if place is not None and place >= position:
            raise CorruptDataError(
                "a section of the manifest file is after the manifest", position=place
            )


def read_indices(stored: StoredManifest) -> Reading[IndexSection]:
    """Read the index section of a manifest's file, once; empty if there is none."""
    section = yield from _read_section(
        stored.positions.index, stored.positions, stored.position, stored.file_bytes
    )
    found = IndexSection() if section is None else IndexSection.parse(section.data)
    stored.indices[:] = [found]
    return found


def read_transaction(stored: StoredManifest) -> Reading[Transaction | None]:
    """Read the transaction in a manifest's file, if there is one."""
    section = yield from _read_section(
        stored.positions.transaction, stored.positions, stored.position, stored.file_bytes
    )
    return None if section is None else Transaction.parse(section.data)


def read_auxiliary_data(stored: StoredManifest) -> Reading[dict[str, bytes]]:
    """Read the data that a writer attached to the version, if there are any."""
    section = yield from _read_section(
        stored.manifest.version_aux_data or None,
        stored.positions,
        stored.position,
        stored.file_bytes,
    )
    return {} if section is None else parse_auxiliary_data(section)


def parse_manifest_file(data: Bytes) -> StoredManifest:
    """Return the manifest of a file that is in memory."""
    return run(read_manifest(len(data)), lambda wanted: Slices(data, wanted.position, wanted.size))


def render_manifest_file(
    manifest: Manifest,
    indices: IndexSection,
    transaction: Transaction | None,
    *,
    dictionary_values: bytes = b"",
) -> bytes:
    """Return the file of a manifest as the reference writes it, without seals."""
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
    """Return the sealed file of a manifest, and what reading it will give.

    `transaction` is rendered and sealed already, as it is in a file of its own too.
    `dictionary_values` goes to the start of the file, where the schema's dictionary locations
    point to.
    """
    section = sealed(indices.render()) if indices.indices or indices.unknown else None
    return _join(manifest, section, transaction, dictionary_values, seal_of)


def _join(
    manifest: Manifest,
    indices: bytes | None,
    transaction: bytes | None,
    dictionary_values: bytes,
    seal: Callable[[Bytes, Bytes], bytes] = lambda _head, _fragments: b"",
) -> tuple[bytes, StoredManifest]:
    """Return sections, the manifest and its seal as one file, and what reading it will give."""
    pieces: list[bytes | memoryview] = [dictionary_values]
    at = len(dictionary_values)
    places: list[int | None] = []
    for section in (indices, transaction):
        places.append(None if section is None else at)
        if section is not None:
            pieces += [_SIZE.pack(len(section)), section]
            at += _SIZE.size + len(section)
    positions = SectionPositions(*places)
    head, fragments = render_manifest(manifest, positions)
    fragments = np.ascontiguousarray(fragments)
    end = seal(np.frombuffer(head, np.uint8), fragments)
    size = len(head) + len(fragments) + len(end)
    pieces += [_SIZE.pack(size), head, fragments.data, end]
    pieces.append(_FOOTER.pack(at, *_FOOTER_VERSION, _MAGIC))
    data = b"".join(pieces)
    return data, StoredManifest(manifest, positions, at, len(data))


def _parse_footer(tail: Bytes, file_bytes: int) -> int:
    """Return the position of the manifest."""
    if len(tail) < _FOOTER.size + _SIZE.size:
        raise CorruptDataError("the file is too short for a manifest", file_bytes=file_bytes)
    position, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :].data)
    if magic != _MAGIC:
        raise CorruptDataError(
            "the file does not end as a manifest; was it cut short?", found=magic.hex()
        )
    if position > file_bytes - _FOOTER.size - _SIZE.size:
        raise CorruptDataError(
            "the footer points past the end of the file; was it cut short by a copy?",
            position=position,
            file_bytes=file_bytes,
        )
    return int(position)


def _read_section(
    position: int | None, positions: SectionPositions, end: int, file_bytes: int
) -> Reading[Bytes | None]:
    """Read a section, which ends at the latest where the next thing in the file starts.

    All end where the manifest begins, at `end`.
    """
    if position is None:
        return None
    others = (positions.index, positions.transaction, end)
    stop = min(place for place in others if place is not None and place > position)
    slices = yield Ranges.of((position, stop - position))
    section = slices.slice_bytes(0)
    size = int.from_bytes(section[: _SIZE.size].data, "little")
    if size > len(section) - _SIZE.size or (
        is_sealed(section) and size + _SIZE.size < len(section)
    ):
        raise CorruptDataError(
            "a section of the manifest's file does not end where the next begins",
            position=position,
            section_bytes=size,
            file_bytes=file_bytes,
        )
    return unsealed(section[_SIZE.size : _SIZE.size + size])

"""The fragments of a version, decoded on access.

A table may have 100 000 fragments, and opening it must not decode them. The list holds the
serialized manifest entries and a few columns of numbers extracted from them:

    wire     12 04 08 00 20 64   12 08 08 01 20 32 1a 02 20 05
    ids      0                   1
    rows     100                 50, 5 of them deleted

An append concatenates bytes and columns. A commit that changes a few fragments copies the ranges
between them. Both cost a memory copy and no decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.errors import CorruptDataError, InvalidInputError, NotFoundError
from lancelet.format.fragment import Fragment
from lancelet.format.protos import table_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.kernels import find_parts, find_parts_in, read_varints
from lancelet.values import dataclass

FRAGMENTS_FIELD: Final = 2

_TAG: Final = bytes([FRAGMENTS_FIELD << 3 | 2])
_PATHS: Final = np.array(
    [(0, 1), (0, 4), (3, 0), (3, 4), (5, 0), (12, 0), (13, 0), (14, 0), (11, 0), (6, 0)],
    np.int64,
).reshape(-1)
_FILES_FIELD: Final = 2
_FILE_SIZE_PATH: Final = np.array([0, 6], np.int64)
_FRAGMENT_ID_MAX: Final = 2**32 - 1
_ROWS_MAX: Final = 2**48

_CACHED_FRAGMENTS_MAX: Final = 4096
"""Maximum number of cached fragments; scans of larger lists decode fragments again."""
_DIRECT_FRAGMENTS_MAX: Final = 16
"""Maximum number of fragments whose columns are built without a scan of the bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class FragmentList(Sequence[Fragment]):
    """Fragments in manifest order, with their counts as columns.

    `position` and `size` are the byte ranges of the fragment messages within `wire`.
    """

    wire: Bytes
    position: Int64s
    size: Int64s
    ids: Int64s
    physical_rows: Int64s
    num_deleted_rows: Int64s
    has_deletion_file: npt.NDArray[np.bool_]
    has_row_ids: npt.NDArray[np.bool_]
    has_spilled_lineage: npt.NDArray[np.bool_]
    has_overlays: npt.NDArray[np.bool_]
    _parsed: dict[int, Fragment] = field(default_factory=dict, repr=False)

    @staticmethod
    def parse(wire: Bytes) -> FragmentList:
        """Parse concatenated manifest entries."""
        head, position, size = find_parts(wire, FRAGMENTS_FIELD)
        return _scan(*_to_contiguous(wire, head, position, size))

    @staticmethod
    def of(fragments: Iterable[Fragment]) -> FragmentList:
        """Create a list from fragments."""
        fragment_tuple = tuple(fragments)
        bodies = [fragment.render() for fragment in fragment_tuple]
        entries = [_TAG + _varint(len(body)) + body for body in bodies]
        wire = _as_bytes(b"".join(entries))
        if not 0 < len(fragment_tuple) <= _DIRECT_FRAGMENTS_MAX or not all(
            map(_is_plain, fragment_tuple)
        ):
            return FragmentList.parse(wire)
        size = np.array([len(body) for body in bodies], np.int64)
        # A scan of the bytes would return the same columns at a higher cost.
        return FragmentList(
            wire=wire,
            position=np.cumsum([len(entry) for entry in entries]) - size,
            size=size,
            ids=np.array([fragment.id for fragment in fragment_tuple], np.int64),
            physical_rows=np.array([each.physical_rows for each in fragment_tuple], np.int64),
            num_deleted_rows=np.array([each.num_deleted_rows for each in fragment_tuple], np.int64),
            has_deletion_file=np.array([each.deletion_file is not None for each in fragment_tuple]),
            has_row_ids=np.array([each.row_ids is not None for each in fragment_tuple]),
            has_spilled_lineage=np.zeros(len(fragment_tuple), np.bool_),
            has_overlays=np.zeros(len(fragment_tuple), np.bool_),
        )

    def __len__(self) -> int:
        """Return the number of fragments."""
        return len(self.position)

    @overload
    def __getitem__(self, index: int) -> Fragment: ...
    @overload
    def __getitem__(self, index: slice) -> FragmentList: ...
    def __getitem__(self, index: int | slice) -> Fragment | FragmentList:
        """Return one fragment, decoded on first access, or a list of the selected fragments."""
        if isinstance(index, slice):
            return self.select(np.arange(len(self), dtype=np.int64)[index])
        number = range(len(self))[index]
        fragment = self._parsed.get(number)
        if fragment is None:
            start = int(self.position[number])
            fragment = Fragment.parse(self.wire[start : start + int(self.size[number])].data)
            if len(self._parsed) >= _CACHED_FRAGMENTS_MAX:
                self._parsed.clear()
            self._parsed[number] = fragment
        return fragment

    def __iter__(self) -> Iterator[Fragment]:
        """Yield every fragment, decoding each."""
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return whether both lists contain the same bytes."""
        return isinstance(other, FragmentList) and np.array_equal(self.wire, other.wire)

    __hash__ = None  # type: ignore[assignment]  # a list of a hundred thousand is no key

    @property
    def is_counted(self) -> npt.NDArray[np.bool_]:
        """Mask of the fragments whose entry records both row counts."""
        deletions_counted = ~self.has_deletion_file | (self.num_deleted_rows > 0)
        return (self.physical_rows > 0) & deletions_counted

    @property
    def num_rows(self) -> int:
        """The number of live rows of all fragments, from the manifest counts alone."""
        return int(self.physical_rows.sum() - self.num_deleted_rows.sum())

    def count_files(self) -> tuple[int, int]:
        """Return the number of data files and their total size, without decoding fragments."""
        if not len(self):
            return 0, 0
        entries = ByteSlices(self.wire, self.position, self.size)
        _, position, size = find_parts_in(entries, _FILES_FIELD)
        sizes, _ = read_varints(ByteSlices(self.wire, position, size), _FILE_SIZE_PATH)
        return len(position), sum(sizes[0].tolist())  # sizes may be arbitrary 64-bit integers

    @property
    def max_id(self) -> int | None:
        """The highest fragment id, or None for an empty list."""
        return int(self.ids.max()) if len(self) else None

    def index_of(self, fragment_id: int) -> int:
        """Return the index of the fragment with the given id."""
        ids = self.ids
        # Most lists have consecutive ids.
        likely = fragment_id - int(ids[0]) if len(ids) else 0
        if 0 <= likely < len(ids) and ids[likely] == fragment_id:
            return likely
        indices = np.flatnonzero(ids == fragment_id)
        if not len(indices):
            raise NotFoundError("no fragment has this id", fragment_id=fragment_id)
        return int(indices[0])

    def check_unique_ids(self) -> None:
        """Raise if two fragments share an id, as old writers produced, where ids must be unique."""
        if (self.ids[1:] > self.ids[:-1]).all():
            return
        ordered = np.sort(self.ids)
        duplicates = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(duplicates):
            raise InvalidInputError(
                "two fragments share an id, as releases of the reference up to 0.16 wrote them; "
                "the table can be scanned, but must be overwritten with its rows, or restored "
                "to an earlier version, before it is changed or read in tasks",
                fragment_id=int(duplicates[0]),
            )

    def by_id(self, fragment_id: int) -> Fragment:
        """Return the fragment with the given id."""
        return self[self.index_of(fragment_id)]

    def message(self, index: int) -> bytes:
        """Return a serialized fragment without decoding it."""
        start = int(self.position[index])
        return self.wire[start : start + int(self.size[index])].tobytes()

    def messages(self) -> Iterator[bytes]:
        """Yield every serialized fragment without decoding."""
        stops = (self.position + self.size).tolist()
        whole = self.wire.tobytes()
        return (
            whole[start:stop] for start, stop in zip(self.position.tolist(), stops, strict=True)
        )

    def select(self, indices: Int64s) -> FragmentList:
        """Return the fragments at the given indices, in the given order."""
        entries = [self.entries(int(a), int(b)) for a, b in _runs(indices)]
        return self.with_entries(entries, self._columns(indices))

    def appended(self, fragments: Iterable[Fragment]) -> FragmentList:
        """Return the list with more fragments appended."""
        return self.joined(FragmentList.of(fragments))

    def joined(self, more: FragmentList) -> FragmentList:
        """Return the concatenation of two lists."""
        columns = {
            name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in _COLUMNS
        }
        position = np.concatenate([self.position, more.position + len(self.wire)])
        wire = np.concatenate([self.wire, more.wire])
        return FragmentList(wire=wire, position=position, **columns)  # type: ignore[arg-type]  # by name

    def changed(
        self, *, replaced: Mapping[int, Fragment] | None = None, removed: Iterable[int] = ()
    ) -> FragmentList:
        """Return the list with some fragments replaced in number and some removed, by id.

        An unknown id is an error: the caller works on another version.
        """
        replaced, removed_ids = replaced or {}, tuple(removed)
        remaining = (
            self._without(np.unique(np.array(removed_ids, np.int64))) if removed_ids else self
        )
        if not replaced:
            return remaining
        if len(replaced) <= _DIRECT_FRAGMENTS_MAX:
            return _replace_few(remaining, replaced)
        both = remaining.joined(FragmentList.of(replaced.values()))
        order = np.arange(len(remaining), dtype=np.int64)
        for offset, fragment_id in enumerate(replaced):
            order[remaining.index_of(fragment_id)] = len(remaining) + offset
        return both.select(order)

    def _without(self, removed_ids: Int64s) -> FragmentList:
        remaining = np.flatnonzero(~np.isin(self.ids, removed_ids))
        if len(self) - len(remaining) < len(removed_ids):
            missing = np.setdiff1d(removed_ids, self.ids)
            raise NotFoundError("no fragment has this id", fragment_id=int(missing[0]))
        return self.select(remaining)

    def sorted_by_id(self) -> FragmentList:
        """Return the fragments sorted by id, the order of a manifest."""
        if (self.ids[1:] > self.ids[:-1]).all():
            return self
        return self.select(np.argsort(self.ids, kind="stable"))

    def entries(self, first: int, stop: int) -> Bytes:
        """Return the bytes of the entries in `[first, stop)`, including their tags and sizes."""
        if first == stop:
            return self.wire[:0]
        start = int(self.position[first - 1] + self.size[first - 1]) if first else 0
        return self.wire[start : int(self.position[stop - 1] + self.size[stop - 1])]

    def _columns(self, indices: Int64s) -> dict[str, npt.NDArray[np.generic]]:
        return {name: getattr(self, name)[indices] for name in _COLUMNS}

    def with_entries(
        self, entries: Sequence[Bytes], columns: dict[str, npt.NDArray[np.generic]]
    ) -> FragmentList:
        """Return a list of other entries with the given columns."""
        size = columns["size"].astype(np.int64)
        position = np.cumsum(_head_bytes(size) + size) - size
        wire = np.concatenate(entries) if entries else np.empty(0, np.uint8)
        return FragmentList(wire=wire, position=position, **columns)  # type: ignore[arg-type]


_COLUMNS: Final = (
    "size",
    "ids",
    "physical_rows",
    "num_deleted_rows",
    "has_deletion_file",
    "has_row_ids",
    "has_spilled_lineage",
    "has_overlays",
)


@dataclass(frozen=True, slots=True, eq=False)
class FragmentWire:
    """Concatenated manifest entries of fragments, with the byte range of each message."""

    wire: Bytes
    position: Int64s
    size: Int64s

    def fragments(self) -> FragmentList:
        """Parse the entries."""
        return _scan(self.wire, self.position, self.size)

    def uncounted(self) -> FragmentList:
        """Parse the entries without their physical row counts."""
        entries = []
        for start, size in zip(self.position.tolist(), self.size.tolist(), strict=True):
            proto = parse_message(table_pb.DataFragment, self.wire[start : start + size].data)
            proto.ClearField("physical_rows")
            body = render_message(proto)
            entries.append(_TAG + _varint(len(body)) + body)
        return FragmentList.parse(_as_bytes(b"".join(entries)))


def split_entries(message: Bytes) -> tuple[FragmentWire, bytes]:
    """Split a manifest message into its fragment entries and the remaining bytes."""
    head, position, size = find_parts(message, FRAGMENTS_FIELD)
    stop = position + size
    is_whole = len(head) and (head[1:] == stop[:-1]).all()
    if not is_whole or (position - head != _head_bytes(size)).any():
        rest = _bytes_between(message, head, stop)
        return FragmentWire(*_to_contiguous(message, head, position, size)), rest
    first, end, data = int(head[0]), int(stop[-1]), message.data
    rest = bytes(data[:first]) + bytes(data[end:])
    return FragmentWire(message[first:end], position - first, size), rest


def _bytes_between(message: Bytes, head: Int64s, stop: Int64s) -> bytes:
    """Return the bytes between parts, given the start and end of each."""
    data = message.data
    if not len(head):
        return bytes(data)
    gap_indices = np.flatnonzero(head[1:] > stop[:-1]).tolist()
    between = [bytes(data[int(stop[gap]) : int(head[gap + 1])]) for gap in gap_indices]
    return b"".join([bytes(data[: int(head[0])]), *between, bytes(data[int(stop[-1]) :])])


def _to_contiguous(
    message: Bytes, head: Int64s, position: Int64s, size: Int64s
) -> tuple[Bytes, Int64s, Int64s]:
    """Return contiguous entries with minimal heads, copying only if necessary."""
    if not len(head):
        return message[:0], position, size
    stop = position + size
    if (head[1:] == stop[:-1]).all() and (position - head == _head_bytes(size)).all():
        return message[head[0] : stop[-1]], position - head[0], size
    entries = (
        _TAG + _varint(int(size[index])) + message[position[index] : stop[index]].tobytes()
        for index in range(len(head))
    )
    return _as_bytes(b"".join(entries)), np.cumsum(_head_bytes(size) + size) - size, size


def _scan(wire: Bytes, position: Int64s, size: Int64s) -> FragmentList:
    """Read the columns of contiguous entries."""
    values, present = read_varints(ByteSlices(wire, position, size), _PATHS)
    ids, physical_rows, _, num_deleted_rows = values[:4]
    # Tables written before row counts were recorded store 0, even with deletions.
    invalid = (ids > _FRAGMENT_ID_MAX) | (physical_rows > _ROWS_MAX)
    invalid |= (num_deleted_rows > physical_rows) & (physical_rows > 0)
    invalid |= num_deleted_rows > _ROWS_MAX
    if invalid.any():
        index = int(invalid.argmax())
        raise CorruptDataError(
            "a fragment has contradictory row counts",
            fragment_id=int(ids[index]),
            physical_rows=int(physical_rows[index]),
            num_deleted_rows=int(num_deleted_rows[index]),
        )
    return FragmentList(
        wire=wire,
        position=position,
        size=size,
        ids=ids.astype(np.int64),
        physical_rows=physical_rows.astype(np.int64),
        num_deleted_rows=num_deleted_rows.astype(np.int64),
        has_deletion_file=present[2],
        has_row_ids=present[4] | present[5] | present[9],
        has_spilled_lineage=present[5] | present[6] | present[7],
        has_overlays=present[8],
    )


def _runs(indices: Int64s) -> Int64s:
    """Return runs of consecutive indices as pairs of start and stop."""
    if not len(indices):
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    first = indices[np.concatenate([np.zeros(1, np.int64), breaks])]
    last = indices[np.append(breaks - 1, len(indices) - 1)]
    return np.stack([first, last + 1], axis=1)


def _replace_few(fragments: FragmentList, replaced: Mapping[int, Fragment]) -> FragmentList:
    """Replace a few fragments by copying the byte ranges between them."""
    new = FragmentList.of(replaced.values())
    indices = [fragments.index_of(fragment_id) for fragment_id in replaced]
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for name in _COLUMNS:
        columns[name] = getattr(fragments, name).copy()
        columns[name][indices] = getattr(new, name)
    entries: list[Bytes] = []
    copied = 0
    for index, new_index in sorted(zip(indices, range(len(new)), strict=True)):
        entries += [fragments.entries(copied, index), new.entries(new_index, new_index + 1)]
        copied = index + 1
    return fragments.with_entries([*entries, fragments.entries(copied, len(fragments))], columns)


def _is_plain(fragment: Fragment) -> bool:
    """Return whether a fragment has valid counts and no rarely used features."""
    deleted, rows = fragment.num_deleted_rows, fragment.physical_rows
    return (
        0 <= fragment.id <= _FRAGMENT_ID_MAX
        and 0 <= deleted <= rows <= _ROWS_MAX
        and not (fragment.overlays or fragment.unknown or fragment.has_spilled_lineage)
    )


def _head_bytes(size: Int64s) -> Int64s:
    """Return the number of bytes of each entry's tag and size."""
    bytes_of_size = np.ones(len(size), np.int64)
    largest = size.max(initial=0)
    for bits in (7, 14, 21, 28, 35):
        if largest < 1 << bits:
            break
        bytes_of_size += size >= 1 << bits
    return bytes_of_size + len(_TAG)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _as_bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)

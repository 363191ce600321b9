"""The fragments of a version, mostly left as bytes.

A table may have 100 000 fragments, and opening it must not decode them. So the list keeps their
wire form, one entry after another as a manifest holds them, and a few columns of numbers taken
from it in one pass. A `Fragment` is made when somebody asks for it.

    wire     12 04 08 00 20 64   12 08 08 01 20 32 1a 02 20 05
    ids      0                   1
    rows     100                 50, of which 5 are deleted

A commit that appends joins bytes and columns; one that changes a few fragments copies what lies
between them. Both cost a copy of memory and no decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.errors import CorruptDataError, InvalidInputError, NotFoundError
from lancelet.format.fragment import Fragment
from lancelet.format.protos import table_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.kernels import find_parts, read_varints
from lancelet.values import dataclass

FRAGMENTS_FIELD: Final = 2

_TAG: Final = bytes([FRAGMENTS_FIELD << 3 | 2])
_PATHS: Final = np.array(
    [(0, 1), (0, 4), (3, 0), (3, 4), (5, 0), (12, 0), (13, 0), (14, 0), (11, 0), (6, 0)],
    np.int64,
).reshape(-1)
_FRAGMENT_ID_MAX: Final = 2**32 - 1
_ROWS_MAX: Final = 2**48

_PARSED_MAX: Final = 4096
"""So many decoded fragments are kept; a scan of more decodes them again."""
_FEW: Final = 16
"""Of so many fragments the columns are made one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class FragmentList(Sequence[Fragment]):
    """Fragments in the order of the manifest, with their numbers as columns.

    `position` and `size` are those of each fragment's message within `wire`.
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
        """Return the fragments of the manifest entries that `wire` is made of."""
        head, position, size = find_parts(wire, FRAGMENTS_FIELD)
        return _scan(*_in_one_piece(wire, head, position, size))

    @staticmethod
    def of(fragments: Iterable[Fragment]) -> FragmentList:
        """Return a list of these fragments."""
        given = tuple(fragments)
        bodies = [fragment.render() for fragment in given]
        entries = [_TAG + _varint(len(body)) + body for body in bodies]
        wire = _as_bytes(b"".join(entries))
        if not 0 < len(given) <= _FEW or not all(map(_is_plain, given)):
            return FragmentList.parse(wire)
        size = np.array([len(body) for body in bodies], np.int64)
        # What a scan of the wire would find is at hand, and asking for it costs less than that.
        return FragmentList(
            wire=wire,
            position=np.cumsum([len(entry) for entry in entries]) - size,
            size=size,
            ids=np.array([fragment.id for fragment in given], np.int64),
            physical_rows=np.array([each.physical_rows for each in given], np.int64),
            num_deleted_rows=np.array([each.num_deleted_rows for each in given], np.int64),
            has_deletion_file=np.array([each.deletion_file is not None for each in given]),
            has_row_ids=np.array([each.row_ids is not None for each in given]),
            has_spilled_lineage=np.zeros(len(given), np.bool_),
            has_overlays=np.zeros(len(given), np.bool_),
        )

    def __len__(self) -> int:
        """Return how many fragments there are."""
        return len(self.position)

    @overload
    def __getitem__(self, index: int) -> Fragment: ...
    @overload
    def __getitem__(self, index: slice) -> FragmentList: ...
    def __getitem__(self, index: int | slice) -> Fragment | FragmentList:
        """Return one fragment, decoding it if this is the first time, or some of them."""
        if isinstance(index, slice):
            return self.select(np.arange(len(self), dtype=np.int64)[index])
        place = range(len(self))[index]
        fragment = self._parsed.get(place)
        if fragment is None:
            start = int(self.position[place])
            fragment = Fragment.parse(self.wire[start : start + int(self.size[place])].data)
            if len(self._parsed) >= _PARSED_MAX:
                self._parsed.clear()
            self._parsed[place] = fragment
        return fragment

    def __iter__(self) -> Iterator[Fragment]:
        """Yield every fragment, decoding each."""
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same bytes."""
        return isinstance(other, FragmentList) and np.array_equal(self.wire, other.wire)

    __hash__ = None  # type: ignore[assignment]  # a list of a hundred thousand is no key

    @property
    def is_counted(self) -> npt.NDArray[np.bool_]:
        """Whether the manifest says of each fragment how many rows it has and are deleted."""
        deletions_counted = ~self.has_deletion_file | (self.num_deleted_rows > 0)
        return (self.physical_rows > 0) & deletions_counted

    @property
    def num_rows(self) -> int:
        """How many rows of all fragments are alive, by the counts of the manifest alone."""
        return int(self.physical_rows.sum() - self.num_deleted_rows.sum())

    @property
    def max_id(self) -> int | None:
        """The highest fragment id, or None if there are no fragments."""
        return int(self.ids.max()) if len(self) else None

    def place_of(self, fragment_id: int) -> int:
        """Return the place of the fragment with that id."""
        ids = self.ids
        # Most lists have ids without gaps.
        likely = fragment_id - int(ids[0]) if len(ids) else 0
        if 0 <= likely < len(ids) and ids[likely] == fragment_id:
            return likely
        places = np.flatnonzero(ids == fragment_id)
        if not len(places):
            raise NotFoundError("no fragment has the id", fragment_id=fragment_id)
        return int(places[0])

    def check_ids_differ(self) -> None:
        """Refuse fragments of one id, which old writers made, where an id has to find one."""
        if (self.ids[1:] > self.ids[:-1]).all():
            return
        ordered = np.sort(self.ids)
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            raise InvalidInputError(
                "two fragments have one id, as releases of the reference up to 0.16 made them; "
                "the table can be scanned, and must be overwritten with its rows, or restored to "
                "a version without them, before it is changed or read in tasks",
                fragment_id=int(again[0]),
            )

    def by_id(self, fragment_id: int) -> Fragment:
        """Return the fragment with that id."""
        return self[self.place_of(fragment_id)]

    def message(self, place: int) -> bytes:
        """Return the wire form of a fragment, without decoding it."""
        start = int(self.position[place])
        return self.wire[start : start + int(self.size[place])].tobytes()

    def messages(self) -> Iterator[bytes]:
        """Yield the wire form of every fragment, without decoding any."""
        stops = (self.position + self.size).tolist()
        whole = self.wire.tobytes()
        return (
            whole[start:stop] for start, stop in zip(self.position.tolist(), stops, strict=True)
        )

    def select(self, places: Int64s) -> FragmentList:
        """Return the fragments at these places, in the order given."""
        pieces = [self.entries(int(a), int(b)) for a, b in _runs(places)]
        return self.rebuilt(pieces, self._columns(places))

    def appended(self, fragments: Iterable[Fragment]) -> FragmentList:
        """Return the list with more fragments behind."""
        return self.joined(FragmentList.of(fragments))

    def joined(self, more: FragmentList) -> FragmentList:
        """Return the list with another behind."""
        columns = {
            name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in _COLUMNS
        }
        position = np.concatenate([self.position, more.position + len(self.wire)])
        wire = np.concatenate([self.wire, more.wire])
        return FragmentList(wire=wire, position=position, **columns)  # type: ignore[arg-type]  # by name

    def changed(
        self, *, replaced: Mapping[int, Fragment] | None = None, removed: Iterable[int] = ()
    ) -> FragmentList:
        """Return the list with some fragments replaced, in place, and some removed, by id.

        An id that the list does not have is an error, as the caller's version is not this one.
        """
        replaced, gone = replaced or {}, tuple(removed)
        remaining = self._without(np.unique(np.array(gone, np.int64))) if gone else self
        if not replaced:
            return remaining
        if len(replaced) <= _FEW:
            return _with_few(remaining, replaced)
        both = remaining.joined(FragmentList.of(replaced.values()))
        order = np.arange(len(remaining), dtype=np.int64)
        for place, fragment_id in enumerate(replaced):
            order[remaining.place_of(fragment_id)] = len(remaining) + place
        return both.select(order)

    def _without(self, gone: Int64s) -> FragmentList:
        kept = np.flatnonzero(~np.isin(self.ids, gone))
        if len(self) - len(kept) < len(gone):
            missing = np.setdiff1d(gone, self.ids)
            raise NotFoundError("no fragment has the id", fragment_id=int(missing[0]))
        return self.select(kept)

    def sorted_by_id(self) -> FragmentList:
        """Return the fragments in the order of their ids, which is that of a manifest."""
        if (self.ids[1:] > self.ids[:-1]).all():
            return self
        return self.select(np.argsort(self.ids, kind="stable"))

    def entries(self, first: int, stop: int) -> Bytes:
        """Return the bytes of the entries from one place to before another, heads included."""
        if first == stop:
            return self.wire[:0]
        start = int(self.position[first - 1] + self.size[first - 1]) if first else 0
        return self.wire[start : int(self.position[stop - 1] + self.size[stop - 1])]

    def _columns(self, places: Int64s) -> dict[str, npt.NDArray[np.generic]]:
        return {name: getattr(self, name)[places] for name in _COLUMNS}

    def rebuilt(
        self, pieces: Sequence[Bytes], columns: dict[str, npt.NDArray[np.generic]]
    ) -> FragmentList:
        """Return a list of other entries, given with their columns."""
        size = columns["size"].astype(np.int64)
        position = np.cumsum(_head_bytes(size) + size) - size
        wire = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
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
    """The entries of fragments as a manifest holds them, and where the message of each is."""

    wire: Bytes
    position: Int64s
    size: Int64s

    def fragments(self) -> FragmentList:
        """Return the list of them."""
        return _scan(self.wire, self.position, self.size)

    def uncounted(self) -> FragmentList:
        """Return the list of them as if the manifest did not say how many rows they have."""
        entries = []
        for start, size in zip(self.position.tolist(), self.size.tolist(), strict=True):
            proto = parse_message(table_pb.DataFragment, self.wire[start : start + size].data)
            proto.ClearField("physical_rows")
            body = render_message(proto)
            entries.append(_TAG + _varint(len(body)) + body)
        return FragmentList.parse(_as_bytes(b"".join(entries)))


def split_entries(message: Bytes) -> tuple[FragmentWire, bytes]:
    """Return the fragments of a manifest message as they are, and the message without them."""
    head, position, size = find_parts(message, FRAGMENTS_FIELD)
    stop = position + size
    is_whole = len(head) and (head[1:] == stop[:-1]).all()
    if not is_whole or (position - head != _head_bytes(size)).any():
        rest = _rest_of(message, head, stop)
        return FragmentWire(*_in_one_piece(message, head, position, size)), rest
    first, end, data = int(head[0]), int(stop[-1]), message.data
    rest = bytes(data[:first]) + bytes(data[end:])
    return FragmentWire(message[first:end], position - first, size), rest


def _rest_of(message: Bytes, head: Int64s, stop: Int64s) -> bytes:
    """Return the bytes between parts, given where each begins and ends."""
    data = message.data
    if not len(head):
        return bytes(data)
    # Parts that touch leave nothing between.
    gaps = np.flatnonzero(head[1:] > stop[:-1]).tolist()
    between = [bytes(data[int(stop[gap]) : int(head[gap + 1])]) for gap in gaps]
    return b"".join([bytes(data[: int(head[0])]), *between, bytes(data[int(stop[-1]) :])])


def _in_one_piece(
    message: Bytes, head: Int64s, position: Int64s, size: Int64s
) -> tuple[Bytes, Int64s, Int64s]:
    """Return the entries back to back, each with the shortest head, copying only if need be."""
    if not len(head):
        return message[:0], position, size
    stop = position + size
    if (head[1:] == stop[:-1]).all() and (position - head == _head_bytes(size)).all():
        return message[head[0] : stop[-1]], position - head[0], size
    entries = (
        _TAG + _varint(int(size[place])) + message[position[place] : stop[place]].tobytes()
        for place in range(len(head))
    )
    return _as_bytes(b"".join(entries)), np.cumsum(_head_bytes(size) + size) - size, size


def _scan(wire: Bytes, position: Int64s, size: Int64s) -> FragmentList:
    """Read the columns of entries that lie back to back."""
    values, present = read_varints(Slices(wire, position, size), _PATHS)
    ids, physical_rows, _, num_deleted_rows = values[:4]
    # A table from before rows were counted says 0, whatever is deleted.
    unsound = (ids > _FRAGMENT_ID_MAX) | (physical_rows > _ROWS_MAX)
    unsound |= (num_deleted_rows > physical_rows) & (physical_rows > 0)
    unsound |= num_deleted_rows > _ROWS_MAX
    if unsound.any():
        place = int(unsound.argmax())
        raise CorruptDataError(
            "a fragment has numbers that contradict each other",
            fragment_id=int(ids[place]),
            physical_rows=int(physical_rows[place]),
            num_deleted_rows=int(num_deleted_rows[place]),
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


def _runs(places: Int64s) -> Int64s:
    """Return consecutive places as pairs of first and stop."""
    if not len(places):
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    first = places[np.concatenate([np.zeros(1, np.int64), breaks])]
    last = places[np.append(breaks - 1, len(places) - 1)]
    return np.stack([first, last + 1], axis=1)


def _with_few(fragments: FragmentList, replaced: Mapping[int, Fragment]) -> FragmentList:
    """Return a list with some fragments replaced, by copying what lies between them."""
    new = FragmentList.of(replaced.values())
    places = [fragments.place_of(fragment_id) for fragment_id in replaced]
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for name in _COLUMNS:
        columns[name] = getattr(fragments, name).copy()
        columns[name][places] = getattr(new, name)
    pieces: list[Bytes] = []
    done = 0
    for place, own in sorted(zip(places, range(len(new)), strict=True)):
        pieces += [fragments.entries(done, place), new.entries(own, own + 1)]
        done = place + 1
    return fragments.rebuilt([*pieces, fragments.entries(done, len(fragments))], columns)


def _is_plain(fragment: Fragment) -> bool:
    """Return whether the numbers of a fragment make sense, and nothing in it is seldom used."""
    deleted, rows = fragment.num_deleted_rows, fragment.physical_rows
    return (
        0 <= fragment.id <= _FRAGMENT_ID_MAX
        and 0 <= deleted <= rows <= _ROWS_MAX
        and not (fragment.overlays or fragment.unknown or fragment.has_spilled_lineage)
    )


def _head_bytes(size: Int64s) -> Int64s:
    """Return how many bytes the tag and the size of each entry take."""
    bytes_of_size = np.ones(len(size), np.int64)
    for bits in (7, 14, 21, 28, 35):
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

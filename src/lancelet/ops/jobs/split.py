"""Cutting the rows of a version into tasks of about the same size.

    fragments   0: 10 MB   1: 20 MB   2: 900 MB (300 rows)   3: 5 MB
    of 300 MB   [0, 1]     2 rows 0..100   2 rows 100..200   2 rows 200..300   [3]

Sizes come from the manifest alone: the bytes of a file, times the share of its columns that are
read, times the share of its rows that are alive. They are estimates; a fixed-width column counts
by its width and any other as `_VARIABLE_WIDTH` bytes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final

import pyarrow as pa

from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

SPLIT_BYTES_MAX: Final = 256 * 1024 * 1024
SPLIT_BYTES_MIN: Final = 32 * 1024 * 1024
_SPLITS_WANTED: Final = 32
_VARIABLE_WIDTH: Final = 32


@dataclass(frozen=True, slots=True)
class Split:
    """Rows that one task reads: all live rows of fragments, or some live rows of a single one.

    `first_row` counts live rows from the first of the fragment; `num_rows` is None for all.
    `num_bytes` is about what the fields that are read have in files.
    """

    fragments: tuple[int, ...]
    first_row: int = 0
    num_rows: int | None = None
    num_bytes: int = 0


def plan_splits(
    snapshot: Snapshot,
    *,
    fields: Sequence[Field] | None = None,
    fragments: Sequence[int] | None = None,
    split_bytes: int | None = None,
    bytes_min: int = SPLIT_BYTES_MIN,
    can_cut: bool = True,
) -> list[Split]:
    """Return splits of about `split_bytes` that together hold all live rows, in order.

    By default splits are small enough that a table of some size keeps a cluster busy, but not
    smaller than `bytes_min`. Fragments are only cut where `can_cut` says that a task may read a
    part of one.
    """
    chosen, sizes = _sizes(snapshot, fields, fragments)
    target = split_bytes or max(bytes_min, min(SPLIT_BYTES_MAX, sum(sizes) // _SPLITS_WANTED))
    return list(_cut(snapshot, chosen, sizes, target, can_cut=can_cut))


def estimate_bytes(
    snapshot: Snapshot, *, fields: Sequence[Field], fragments: Sequence[int] | None = None
) -> int:
    """Return about how many bytes of files hold the fields of all live rows."""
    return sum(_sizes(snapshot, fields, fragments)[1])


def _sizes(
    snapshot: Snapshot, fields: Sequence[Field] | None, fragments: Sequence[int] | None
) -> tuple[list[Fragment], list[int]]:
    """Return the fragments that have live rows, and about how large their fields are."""
    snapshot.fragments.check_unique_ids()
    chosen = [
        fragment
        for fragment in (
            snapshot.fragments
            if fragments is None
            else [snapshot.fragments.by_id(number) for number in fragments]
        )
        if snapshot.live_rows(fragment)
    ]
    wanted = None if fields is None else frozenset(leaf.id for leaf in _leaves(fields))
    widths = {int(leaf.id): _width(leaf) for leaf in _leaves(snapshot.schema.fields)}

    @cache
    def widths_of(numbers: tuple[int, ...]) -> tuple[int, int]:
        held = sum(widths.get(number, 0) for number in numbers) or 1
        if wanted is None:
            return held, held
        return held, sum(widths.get(number, 0) for number in wanted.intersection(numbers))

    return chosen, [_bytes_of(fragment, widths_of, snapshot) for fragment in chosen]


def _cut(
    snapshot: Snapshot,
    fragments: Sequence[Fragment],
    sizes: Sequence[int],
    target: int,
    *,
    can_cut: bool,
) -> Iterator[Split]:
    group: list[int] = []
    held = 0
    for fragment, size in zip(fragments, sizes, strict=True):
        if group and held + size > target:
            yield Split(tuple(group), num_bytes=held)
            group, held = [], 0
        parts = -(-size // target) if can_cut else 1
        if parts <= 1:
            group.append(int(fragment.id))
            held += size
            continue
        rows = snapshot.live_rows(fragment)
        step = max(1, -(-rows // parts))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield Split((int(fragment.id),), start, count, size * count // rows)
    if group:
        yield Split(tuple(group), num_bytes=held)


def _bytes_of(
    fragment: Fragment,
    widths_of: Callable[[tuple[int, ...]], tuple[int, int]],
    snapshot: Snapshot,
) -> int:
    rows = snapshot.physical_rows(fragment)
    alive = snapshot.live_rows(fragment) / max(rows, 1)
    total = 0.0
    for file in fragment.files:
        held, read = widths_of(tuple(file.fields))
        total += (file.size_bytes or rows * held) * read / held
    return int(total * alive)


def _leaves(fields: Sequence[Field]) -> Iterator[Field]:
    for field in fields:
        for node in field.walk():
            if not node.children:
                yield node


def _width(leaf: Field) -> int:
    data_type = leaf.storage_type
    if pa.types.is_fixed_size_list(data_type):
        return int(_type_width(data_type.value_type) * data_type.list_size)
    return _type_width(data_type)


def _type_width(data_type: pa.DataType) -> int:
    try:
        bits = int(data_type.bit_width)
    except ValueError:
        return _VARIABLE_WIDTH
    return max(1, bits // 8)

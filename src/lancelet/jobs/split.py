"""Split the rows of a version into tasks of about the same size.

    fragments   0: 10 MB   1: 20 MB   2: 900 MB (300 rows)   3: 5 MB
    of 300 MB   [0, 1]     2 rows 0..100   2 rows 100..200   2 rows 200..300   [3]

Sizes are estimated from the manifest: the file size, times the share of its columns that are read,
times the share of live rows. Columns are weighted by their width, with `_VARIABLE_WIDTH` bytes per
row for variable-width types.
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
_TARGET_SPLITS: Final = 32
_VARIABLE_WIDTH: Final = 32


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of one task: all live rows of fragments, or a range of a single fragment.

    `first_row` counts live rows of the fragment; `num_rows` is None for all rows. `num_bytes` is
    the estimated size of the requested fields.
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
    """Return splits of about `split_bytes` bytes that cover all live rows, in order.

    The default size yields enough splits for a cluster, but not smaller than `bytes_min`. Fragments
    are only split if `can_cut` is set.
    """
    live_fragments, sizes = _estimate_sizes(snapshot, fields, fragments)
    target = split_bytes or max(bytes_min, min(SPLIT_BYTES_MAX, sum(sizes) // _TARGET_SPLITS))
    return list(_split_fragments(snapshot, live_fragments, sizes, target, can_cut=can_cut))


def estimate_bytes(
    snapshot: Snapshot, *, fields: Sequence[Field], fragments: Sequence[int] | None = None
) -> int:
    """Return the estimated file size of fields, for all live rows."""
    return sum(_estimate_sizes(snapshot, fields, fragments)[1])


def _estimate_sizes(
    snapshot: Snapshot, fields: Sequence[Field] | None, fragments: Sequence[int] | None
) -> tuple[list[Fragment], list[int]]:
    """Return the fragments with live rows, and the estimated sizes of their fields."""
    snapshot.fragments.check_unique_ids()
    live_fragments = [
        fragment
        for fragment in (
            snapshot.fragments
            if fragments is None
            else [snapshot.fragments.by_id(number) for number in fragments]
        )
        if snapshot.live_rows(fragment)
    ]
    requested = None if fields is None else frozenset(leaf.id for leaf in _leaves(fields))
    widths = {int(leaf.id): _width(leaf) for leaf in _leaves(snapshot.schema.fields)}

    @cache
    def widths_of(numbers: tuple[int, ...]) -> tuple[int, int]:
        total = sum(widths.get(number, 0) for number in numbers) or 1
        if requested is None:
            return total, total
        return total, sum(widths.get(number, 0) for number in requested.intersection(numbers))

    return live_fragments, [
        _estimate_bytes(fragment, widths_of, snapshot) for fragment in live_fragments
    ]


def _split_fragments(
    snapshot: Snapshot,
    fragments: Sequence[Fragment],
    sizes: Sequence[int],
    target: int,
    *,
    can_cut: bool,
) -> Iterator[Split]:
    group: list[int] = []
    group_bytes = 0
    for fragment, size in zip(fragments, sizes, strict=True):
        if group and group_bytes + size > target:
            yield Split(tuple(group), num_bytes=group_bytes)
            group, group_bytes = [], 0
        parts = -(-size // target) if can_cut else 1
        if parts <= 1:
            group.append(int(fragment.id))
            group_bytes += size
            continue
        rows = snapshot.live_rows(fragment)
        step = max(1, -(-rows // parts))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield Split((int(fragment.id),), start, count, size * count // rows)
    if group:
        yield Split(tuple(group), num_bytes=group_bytes)


def _estimate_bytes(
    fragment: Fragment,
    widths_of: Callable[[tuple[int, ...]], tuple[int, int]],
    snapshot: Snapshot,
) -> int:
    rows = snapshot.physical_rows(fragment)
    alive = snapshot.live_rows(fragment) / max(rows, 1)
    total = 0.0
    for file in fragment.files:
        file_width, read = widths_of(tuple(file.fields))
        total += (file.size_bytes or rows * file_width) * read / file_width
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

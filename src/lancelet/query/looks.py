"""Which rows of which fragments a scan will look at, as far as that is known before it runs.

    filter k > 5, zones of k        rows 8192 .. 20000 of fragment 0
    BITMAP on city                  rows 4, 17 and 90 of fragment 0, row 3 of fragment 2
    BTREE on k, pages not read      about 900 rows, taken to lie evenly among those that may match

Indices are asked for the rows where all that this takes is in memory; else they only estimate
how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.format.field import Field
from lancelet.format.roaring import numbers_of
from lancelet.io.metered import IoCounts
from lancelet.query import expression as ex
from lancelet.query.expression import Expression, Operator
from lancelet.query.indexing.choose import ChosenPart
from lancelet.query.indexing.search import Candidates
from lancelet.query.nodes.filter import filtered_ranges
from lancelet.query.nodes.pack import Pack, packed
from lancelet.query.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.query.plan import FilterStep, ScanPlan
from lancelet.rowids.selection import ALL
from lancelet.values import dataclass

_LOOKS_MAX: Final = 16
"""Of single rows in more places only those in some are worked out."""
_EQUAL_SHARE: Final = 0.1
_SHARE: Final = 1 / 3
"""The share of rows that parts of filters are guessed to leave, as databases do."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Rows of a fragment that are looked at together: `offsets` within `rows`, or all of them.

    The fields `at_once` are read together, as `Split` has it.
    """

    source: FragmentSource
    rows: RowRange
    offsets: Int64s | None = None
    at_once: tuple[Field, ...] = ()

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.rows) if self.offsets is None else len(self.offsets)

    def some(self, count: int) -> Look:
        """Return `count` rows: contiguous ones of a range that statistics left, else even ones.

        Statistics leave a part of a fragment where values are clustered, and so are matches.
        """
        if count >= len(self):
            return self
        if self.offsets is None and len(self) < self.source.num_rows:
            first = self.rows.start + (len(self) - count) // 2
            return Look(self.source, RowRange(first, first + count))
        places = np.linspace(0, len(self) - 1, count).astype(np.int64)
        if self.offsets is not None:
            return Look(self.source, self.rows, self.offsets[places])
        return Look(self.source, self.rows, places + self.rows.start)


def looks_of(
    plan: ScanPlan,
    found: Candidates | None,
    parts: Sequence[ChosenPart],
    kept: Sequence[Field] = (),
) -> tuple[Look, ...]:
    """Return the rows that are looked at, of which indices `found` some or will find `parts`.

    The `kept` fields are those that are used of rows that pass.
    """
    options, looks = plan.options, list[Look]()
    chosen = list(sources(plan.snapshot, options.fragments, with_deleted=options.with_deleted))
    covered = frozenset(found.covered) if found is not None else _covered(parts)
    guessed: list[Look] = []
    for source in chosen:
        everything = RowRange(0, source.num_rows)
        if int(source.fragment.id) not in covered:
            if not (covered and options.indexed_only):
                looks += _in_range(plan, source, everything, plan.steps, kept)
        elif found is not None:
            looks += _found(plan, source, found, kept)
        elif has_statistics(plan, source):
            guessed += _in_range(plan, source, everything, plan.steps, kept)
        else:
            guessed.append(Look(source, everything))
    if guessed:
        looks += spread(guessed, min(part.estimate for part in parts))
    return tuple(looks)


def _covered(parts: Sequence[ChosenPart]) -> frozenset[int]:
    indices = [index for part in parts for index in part.indices]
    return frozenset.intersection(*(index.covered for index in indices)) if indices else frozenset()


def has_statistics(plan: ScanPlan, source: FragmentSource) -> bool:
    """Say whether statistics of a fragment were read before, for the columns of the filter."""
    fields = [field for step in plan.steps for field in step.fields]
    return bool(fields) and source.reader.statistics_reads(fields) != IoCounts()


def _in_range(
    plan: ScanPlan,
    source: FragmentSource,
    within: RowRange,
    steps: tuple[FilterStep, ...],
    kept: Sequence[Field],
) -> Iterator[Look]:
    """Yield what statistics leave of rows of a fragment."""
    if len(within):
        for each in filtered_ranges(plan, source, within, steps, kept):
            yield Look(source, each.rows, at_once=each.at_once)


def _found(
    plan: ScanPlan, source: FragmentSource, found: Candidates, kept: Sequence[Field]
) -> Iterator[Look]:
    """Yield the rows of a fragment that indices found."""
    fragment_id = int(source.fragment.id)
    if fragment_id not in found.rows.parts:
        return
    bitmap = found.rows.parts[fragment_id]
    if bitmap is ALL:
        yield from _in_range(plan, source, RowRange(0, source.num_rows), found.steps, kept)
    elif bitmap:
        rows = RowRange(bitmap.min(), bitmap.max() + 1)
        if len(rows) == len(bitmap) > 1:
            yield from _in_range(plan, source, rows, found.steps, kept)
            return
        offsets = source.without_hidden(numbers_of(bitmap).astype(np.int64))
        if len(offsets):
            yield Look(source, rows, offsets)


def spread(looks: Sequence[Look], count: int) -> tuple[Look, ...]:
    """Return so many of the rows, which lie evenly; in more places than there are rows, in some."""
    total = sum(map(len, looks))
    if count >= total:
        return tuple(looks)
    if count < len(looks):
        chosen = np.linspace(0, len(looks) - 1, count).astype(np.int64).tolist()
        return tuple(looks[place].some(1) for place in chosen)
    return tuple(look.some(-(-len(look) * count // total)) for look in looks)


def reads_of(
    looks: Sequence[Look], fields: Sequence[Field], *, one_by_one: bool = False
) -> IoCounts:
    """Return about what reading fields of rows asks of storage; of single rows it is guessed.

    These may be read `one_by_one`, or with all that is between them.
    """
    if not fields or not looks:
        return IoCounts()

    def read(look: Look) -> IoCounts:
        if one_by_one and look.offsets is not None:
            return look.source.reader.expected_reads(fields, RowIndices(look.offsets))
        return look.source.expected_reads(fields, look.rows, look.offsets)

    total = _added(read(look) for look in looks if look.offsets is None)
    single = [look for look in looks if look.offsets is not None]
    step = -(-len(single) // _LOOKS_MAX) or 1
    some = single[::step]
    found = _added(map(read, some))
    factor = len(single) / max(1, len(some))
    return total + IoCounts(round(found.read_iops * factor), round(found.read_bytes * factor))


def packed_reads(plan: ScanPlan, looks: Sequence[Look]) -> tuple[list[Look], IoCounts]:
    """Return the looks at fragments that are not read as a whole, and the reads of the others.

    Tiny fragments are read together where nothing is waited for.
    """
    whole = {look.source: look for look in looks if len(look.rows) == look.source.num_rows}
    if waits_for_storage(plan.snapshot) or len(whole) < len(looks):
        return list(looks), IoCounts()
    rest: list[Look] = []
    read = IoCounts()
    for source in packed(whole):
        if isinstance(source, Pack):
            files = [file for each in source.members for file in each.fragment.files]
            read += IoCounts(len(files), sum(file.size_bytes or 0 for file in files))
        else:
            rest.append(whole[source])
    return rest, read


def share_of(expressions: Iterable[Expression]) -> float:
    """Return the share of rows that parts of a filter are guessed to leave together."""
    share = 1.0
    for each in expressions:
        share *= _EQUAL_SHARE if _is_equality(each) else _SHARE
    return share


def _is_equality(expression: Expression) -> bool:
    match expression:
        case ex.Comparison(Operator.EQUAL, _, _):
            return True
    return False


def _added(counts: Iterable[IoCounts]) -> IoCounts:
    return sum(counts, IoCounts())

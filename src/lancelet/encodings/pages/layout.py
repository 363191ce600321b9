"""Page layouts of the generations with levels, and pages before serialization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from lancelet.buffers import Bytes, ByteSlices
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.levels import Layers, ShreddedLeaf
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlockLayout:
    """A page of chunks; without a repetition index, rows equal values."""

    layers: Layers
    values: Encoding
    num_values: int
    num_buffers: int
    has_large_chunks: bool
    repetition: Encoding | None = None
    definition: Encoding | None = None
    dictionary: Encoding | None = None
    num_dictionary_items: int = 0
    repetition_index_depth: int = 0

    @property
    def num_extra(self) -> int:
        """The number of page buffers for the dictionary and the repetition index."""
        return (self.dictionary is not None) + (self.repetition_index_depth > 0)

    def check(self, *, page_buffers: int, chunk_buffers: int, column: int) -> None:
        """Raise unless the layout is consistent.

        Args:
            page_buffers: The minimum number of buffers of the pages.
            chunk_buffers: The number of value buffers per chunk required by the encoding.
            column: The column of the pages, for errors.
        """
        if page_buffers < 2 + self.num_extra:
            raise CorruptDataError(
                "a mini-block page has too few buffers", column=column, expected=2 + self.num_extra
            )
        has_lists = self.repetition is not None
        if has_lists != (self.layers.rep_max > 0) or (
            has_lists and not self.repetition_index_depth
        ):
            raise CorruptDataError(
                "the lists of a page do not match its repetition levels and index",
                column=column,
                lists=self.layers.rep_max,
            )
        if self.num_buffers != chunk_buffers:
            raise CorruptDataError(
                "a page does not have the number of buffers that the encoding requires",
                column=column,
                expected=chunk_buffers,
                found=self.num_buffers,
            )


@dataclass(frozen=True, slots=True, eq=False)
class FullZipLayout:
    """A page of individually addressable items.

    Values have either a fixed `value_bits` or a length of `length_bits`; the other is `None`.
    """

    layers: Layers
    values: Encoding
    bits_rep: int
    bits_def: int
    value_bits: int | None
    length_bits: int | None
    num_items: int
    num_visible_items: int


@dataclass(frozen=True, slots=True, eq=False)
class ConstantLayout:
    """A page of levels with one value or none.

    Without `inline_value` and value buffer, all values are null. Levels without an encoding are
    plain numbers.
    """

    layers: Layers
    inline_value: bytes | None
    has_value_buffer: bool = False
    repetition: Encoding | None = None
    definition: Encoding | None = None
    num_repetition: int = 0
    num_definition: int = 0


Layout: TypeAlias = MiniBlockLayout | FullZipLayout | ConstantLayout

NO_CANDIDATES: Final[Mapping[str, str]] = {}
"""The rejected candidates if only one was tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """Pages of one layout with their buffers; page i has slice i of each of `buffers`.

    `page_indices` are relative to the pages encoded together. `encodings` and `refused` are for
    reports.
    """

    page_indices: Sequence[int]
    layout: Layout
    buffers: tuple[ByteSlices, ...]
    encodings: Sequence[str]
    refused: Sequence[Mapping[str, str]]

    @staticmethod
    def single(layout: Layout, buffers: Sequence[Bytes], encoding: str) -> Body:
        """Return a single page."""
        slices = tuple(map(ByteSlices.whole, buffers))
        return Body([0], layout, slices, [encoding], [NO_CANDIDATES])


@dataclass(frozen=True, slots=True, eq=False)
class PageBody:
    """Pages before their layout is serialized.

    `leaf` concatenates their values; `first_row` is the first row of each page in the leaf of its
    column, `rows` the number of rows.
    """

    first_row: int
    rows: int
    leaf: ShreddedLeaf
    body: Body

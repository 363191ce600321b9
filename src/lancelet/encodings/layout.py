"""The layouts that all generations with levels share, and pages on their way to the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from lancelet.buffers import Bytes, Slices
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.levels import Layers, ShreddedLeaf
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlockLayout:
    """A page of chunks; without a repetition index its rows are its values."""

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
        """How many buffers a page has besides words and chunks: dictionary, index of rows."""
        return (self.dictionary is not None) + (self.repetition_index_depth > 0)

    def check(self, *, page_buffers: int, chunk_buffers: int, column: int) -> None:
        """Raise unless pages can have the layout.

        Args:
            page_buffers: The least number of buffers that any of the pages has.
            chunk_buffers: How many buffers of values the encoding needs in a chunk.
            column: The column of the pages, for errors.
        """
        if page_buffers < 2 + self.num_extra:
            raise CorruptDataError(
                "a mini-block page misses buffers", column=column, expected=2 + self.num_extra
            )
        has_lists = self.repetition is not None
        if has_lists != (self.layers.rep_max > 0) or (
            has_lists and not self.repetition_index_depth
        ):
            raise CorruptDataError(
                "a page has lists without repetition levels or index, or these without lists",
                column=column,
                lists=self.layers.rep_max,
            )
        if self.num_buffers != chunk_buffers:
            raise CorruptDataError(
                "a page does not have the number of buffers that its encoding needs",
                column=column,
                expected=chunk_buffers,
                found=self.num_buffers,
            )


@dataclass(frozen=True, slots=True, eq=False)
class FullZipLayout:
    """A page of items side by side.

    Values have `value_bits` each, or lengths of `length_bits`; the other is `None`.
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
    """A page of levels around one value, or around none.

    With neither an `inline_value` nor a buffer for it, everything is null. Levels without an
    encoding are plain numbers.
    """

    layers: Layers
    inline_value: bytes | None
    has_value_buffer: bool = False
    repetition: Encoding | None = None
    definition: Encoding | None = None
    num_repetition: int = 0
    num_definition: int = 0


Layout: TypeAlias = MiniBlockLayout | FullZipLayout | ConstantLayout

NOTHING: Final[Mapping[str, str]] = {}
"""What was refused where nothing else was tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """Pages of one layout with their buffers; page i has the slices i of each of `buffers`.

    `which` are their numbers among the pages that were encoded together. `encodings` and `refused`
    are for reports.
    """

    which: Sequence[int]
    layout: Layout
    buffers: tuple[Slices, ...]
    encodings: Sequence[str]
    refused: Sequence[Mapping[str, str]]

    @staticmethod
    def one(layout: Layout, buffers: Sequence[Bytes], encoding: str, which: int = 0) -> Body:
        """Return a single page."""
        return Body([which], layout, tuple(map(Slices.whole, buffers)), [encoding], [NOTHING])


@dataclass(frozen=True, slots=True, eq=False)
class PageBody:
    """Pages before their layout has become a message.

    `leaf` is what they hold, one behind the other; `first_row` is where each begins in the leaf of
    its column, and `rows` how many it has.
    """

    first_row: int
    rows: int
    leaf: ShreddedLeaf
    body: Body

"""What a kind of scalar index does, in terms of rows and files.

A kind numbers rows by whatever it is given, ids or addresses: rows to index come as values with
numbers, and answers are sets of numbers. It sees neither versions nor fragments' metadata.

    train     rows -> files              open      files -> segment
    merge     segments, rows -> files    remap     segment, moves -> files
    segment   question -> Found(rows, is_exact)

An answer that is not exact has every row that matches and perhaps others, to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.folder import SegmentFolder
from lancelet.index.question import OneOf, Question
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import dataclass

Move: TypeAlias = Callable[[UInt64s], UInt64s]
"""Returns the new number of each row, `NO_ADDRESS` for rows that are gone."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Is told a stage of a build, how much of it is done, and how much there is."""


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexedRows:
    """Rows to be indexed: values, and the number of each row, in the order of the table.

    Those of a table can be read more than once, and `num_rows` says how many they are. Kinds that
    have stages of their own tell `progress` of them.
    """

    data_type: pa.DataType
    parts: Iterable[tuple[pa.Array, UInt64s]]
    num_rows: int = 0
    progress: Progress = silent


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The rows that answer a question; others may be among them unless it is exact."""

    rows: RowSet
    is_exact: bool = True


def gather(rows: IndexedRows) -> tuple[pa.Array, UInt64s]:
    """Return all rows as one array of values and one of numbers."""
    values: list[pa.Array] = [pa.array([], rows.data_type)]
    numbers: list[UInt64s] = [np.empty(0, np.uint64)]
    for array, own in rows.parts:
        values.append(array)
        numbers.append(own)
    return pa.concat_arrays(values), np.concatenate(numbers)


def indexed_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type as which values are indexed: that of their storage, if it has an order.

    >>> indexed_type(pa.uuid())
    FixedSizeBinaryType(fixed_size_binary[16])
    """
    if not isinstance(data_type, pa.BaseExtensionType) or isinstance(data_type, pa.JsonType):
        return data_type
    storage = data_type.storage_type
    return storage if is_ordered_type(storage) else data_type


def is_ordered_type(data_type: pa.DataType) -> bool:
    """Return whether values of a type have an order that indices know."""
    return not (
        pa.types.is_nested(data_type)
        or pa.types.is_dictionary(data_type)
        or pa.types.is_null(data_type)
        or isinstance(data_type, pa.BaseExtensionType)
    )


def is_byte_strings(data_type: pa.DataType) -> bool:
    """Return whether values are texts or byte strings, of any length."""
    return data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the caller asks of an index beyond its kind."""

    values: Mapping[str, Any] = field(default_factory=dict, hash=False)


class IndexTypeError(InvalidInputError, TypeError):
    """Columns of this type cannot have an index of this kind."""


class Segment(Protocol):
    """An open segment, to be asked from any number of threads."""

    def estimate(self, question: Question) -> int | None:
        """Return about how many rows will be found, or None if the kind cannot answer.

        It costs nothing to speak of: what it needs is in memory.
        """

    def search(self, question: Question) -> Found:
        """Return the rows that answer a question that can be answered."""

    def nulls(self) -> RowSet | None:
        """Return the rows that have no value, or None if the segment does not know."""

    def statistics(self) -> dict[str, Any]:
        """Return what there is to say of the segment, for people."""


@runtime_checkable
class Counting(Protocol):
    """A segment that can count rows without finding them."""

    @property
    def num_rows(self) -> int:
        """How many rows it has."""

    def count(self, question: Question) -> int | None:
        """Return how many rows answer a question, or None if it cannot answer."""


@runtime_checkable
class Naming(Protocol):
    """A segment that can name the rows of few values without making a set of them."""

    def few_numbers(self, question: OneOf, most: int) -> UInt64s | None:
        """Return the numbers of rows that answer, in any order; None if there are more."""


@runtime_checkable
class Foreseeing(Protocol):
    """A segment that reads for an answer what it did not read for the estimate."""

    def expected_reads(self, question: Question) -> IoCounts:
        """Return about what finding the rows will read, which is nothing if that is in memory."""


@runtime_checkable
class Typed(Protocol):
    """A segment that knows the type of its values."""

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""


@runtime_checkable
class Complete(Protocol):
    """A segment that has an entry for every row, with or without a value."""

    def numbers(self) -> UInt64s:
        """Return the numbers of all rows, in any order."""


@runtime_checkable
class Sorted(Protocol):
    """A segment whose entries are in the order of their values."""

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""

    def first_entries(self, count: int, *, ascending: bool) -> tuple[pa.Array, UInt64s]:
        """Return the values and numbers of the first rows that have a value, or of the last."""


@runtime_checkable
class Warming(Protocol):
    """A segment that keeps what it reads, and can read it before it is asked."""

    def prewarm(self) -> None:
        """Read what questions will need."""


@runtime_checkable
class Listing(Protocol):
    """A segment that can list each of its entries."""

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the value and the number of the row of every entry."""


S = TypeVar("S", bound=Segment)


class ScalarKind(Protocol[S]):
    """A kind of index, with its class of segments; kinds are made from this class."""

    name: str
    """What callers ask for, such as `BTREE`."""
    title: str
    """What listings show, such as `BTree`."""
    type_url: str
    """The type of the details in the metadata."""
    newest_version: int
    """The newest version of the kind's files that this release reads."""
    needs: str = "the column cannot have an index of this kind"
    """What is said of a column that the kind does not take."""
    own_version: int = 0
    """The version that is written; most write 0, by the ids of rows."""
    addresses_since: int | None = 1
    """The first version whose rows are numbered by address even where they have stable ids."""
    can_remap: bool
    """Whether rows that moved can be renumbered; else the rows must be looked at again."""
    can_move_later: bool = True
    """Whether every reader finds rows that moved since by what is recorded of the moves."""
    has_stages: bool = False
    """Whether training tells of stages of its own."""
    passes_lists: bool = False
    """Whether a column may be within the elements of lists, whose values it gets as lists."""
    path_within: str | None = None
    """The place in documents whose values are indexed, for a kind that looks into them."""
    reads_documents: bool = False
    """Whether it gets documents of JSON columns as text; else as they are stored."""

    def indexed_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type as which the values of a column are indexed."""
        found = indexed_type(data_type)
        is_stored = isinstance(found, pa.JsonType) and not self.reads_documents
        return pa.large_binary() if is_stored else found

    def of_parameters(self, parameters: Parameters) -> AnyKind:  # noqa: ARG002
        """Return the kind that parameters make of it; most are what they are."""
        return self

    def of_details(self, details: bytes) -> AnyKind | None:  # noqa: ARG002
        """Return the kind that details make of it, or None if they name what is not known."""
        return self

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the version that is written for a table."""
        return self.own_version

    def uses_addresses(self, version: int) -> bool:
        """Return whether rows are numbered by address even where they have stable ids."""
        return self.addresses_since is not None and version >= self.addresses_since

    def is_exact(self, question: Question) -> bool:  # noqa: ARG002
        """Return whether answers to a question have no other rows; if not, rows are rechecked."""
        return True

    def describe(self, details: bytes) -> dict[str, Any]:  # noqa: ARG002
        """Return what the details say, by name, for people; those of most kinds are empty."""
        return {}

    def name_ending(self, parameters: Parameters) -> str:  # noqa: ARG002
        """Return what is behind the column in the name of an index that was given none."""
        return "idx"

    def takes(self, data_type: pa.DataType) -> bool:
        """Return whether columns of a type can be indexed; by default those that have an order."""
        return is_ordered_type(data_type)

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise unless columns of a type can be indexed."""
        if not self.takes(data_type):
            raise IndexTypeError(self.needs, column=column, found=str(data_type))

    def parameters_like(self, details: bytes, segment: S | None) -> Parameters:  # noqa: ARG002
        """Return what another segment is asked for to be like one; without rows it is None."""
        return Parameters(self.describe(details))

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Write the files of a new segment, and return its details."""

    def append(
        self,
        segment: S,  # noqa: ARG002 - for kinds whose segments share what was trained
        rows: IndexedRows,
        folder: SegmentFolder,
        parameters: Parameters,
    ) -> bytes:
        """Write a segment of new rows that is to stand beside one."""
        return self.train(rows, folder, parameters)

    def open(self, folder: SegmentFolder, details: bytes) -> S:
        """Open a segment."""

    def merge(
        self,
        segments: Sequence[S],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Write one segment of the rows of several, under their new numbers, and of new rows."""

    def remap(self, segment: S, move: Move, folder: SegmentFolder) -> bytes | None:
        """Write a segment whose rows have other numbers; None if the kind must be trained anew."""
        if not self.can_remap:
            return None
        data_type = segment.data_type if isinstance(segment, Typed) else pa.string()
        return self.merge([segment], [move], IndexedRows(data_type, ()), folder)


AnyKind: TypeAlias = ScalarKind[Any]
"""A kind, whatever its segments are."""

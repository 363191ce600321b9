"""The fields of a file that are read together, and what every such read needs to know of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from operator import is_
from typing import Final, Generic, NamedTuple, TypeVar

import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import FieldReader, FileVersion, RowRange
from lancelet.encodings.bundle import Bundle, is_plain
from lancelet.encodings.levels import LeafNode, nest
from lancelet.encodings.planned import NestedLayout, ValueLayout, layout_of
from lancelet.file.schedule import decoded_row_bytes, few_rows
from lancelet.file.storage import from_storage, has_json
from lancelet.file.v2.generation import columns_of
from lancelet.format import logical_type
from lancelet.format.schema import Field
from lancelet.values import cached_property, dataclass

T = TypeVar("T")

_FIELD_BYTES: Final = 4096
"""What an opened field weighs, about."""

_FIELDS_KEPT: Final = 4096
"""Of so many fields it is kept what users see of them."""

_RECENT: Final = 6
"""So much is not made again: for what a search reads, then what it returns, and so on."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedField:
    """A field that was opened, and the type its users see."""

    field: Field
    reader: FieldReader
    data_type: pa.DataType
    is_as_stored: bool

    @staticmethod
    def of(field: Field, reader: FieldReader) -> OpenedField:
        """Find out what users see of a field."""
        return OpenedField(field, reader, *seen_type(field, reader.data_type))

    def to_user(self, array: pa.Array) -> pa.Array:
        """Return a stored array as users see it."""
        return array if self.is_as_stored else from_storage(array, self.field)


@lru_cache(_FIELDS_KEPT)
def seen_type(field: Field, stored: pa.DataType) -> tuple[pa.DataType, bool]:
    """Return the type in which users see stored values, and whether they see them as they are."""
    data_type = from_storage(pa.nulls(0, stored), field).type
    return data_type, data_type == stored and not has_json(field)


class Recent(Generic[T]):
    """What was made of fields of late, for who asks for the very same fields again.

    Threads that keep something at once may lose one of them.
    """

    __slots__ = ("_each",)

    def __init__(self) -> None:
        """Begin with nothing."""
        self._each: tuple[tuple[Sequence[Field], T], ...] = ()

    def find(self, fields: Sequence[Field]) -> T | None:
        """Return what was made of the very fields, if it is not too long ago."""
        for others, made in self._each:
            if _are_same(fields, others):
                return made
        return None

    def keep(self, fields: Sequence[Field], made: T) -> None:
        """Keep what was made of fields in the place of what was kept first."""
        self._each = ((tuple(fields), made), *self._each[: _RECENT - 1])

    def __iter__(self) -> Iterator[T]:
        """Yield what is kept, the last first."""
        return (made for _, made in self._each)


class FieldForms(NamedTuple):
    """What values of fields are in memory, where they can have plans, and the ids of columns."""

    forms: Sequence[ValueLayout | NestedLayout | None]
    ids: Sequence[Sequence[int]]


_FORMS: Final[defaultdict[FileVersion, Recent[FieldForms]]] = defaultdict(Recent)


def forms_of(fields: Sequence[Field], version: FileVersion) -> FieldForms:
    """Return what values of fields are in files of 2.1 or 2.2, many of which are asked for them."""
    found = _FORMS[version].find(fields)
    if found is None:
        forms = [_form_of_field(field, version) for field in fields]
        ids = [
            (field.id,)
            if isinstance(form, ValueLayout)
            else [each.id for each in columns_of(field, version)]
            for field, form in zip(fields, forms, strict=True)
        ]
        found = FieldForms(forms, ids)
        _FORMS[version].keep(fields, found)
    return found


def _form_of_field(field: Field, version: FileVersion) -> ValueLayout | NestedLayout | None:
    """Return the form of a field whose values users see as they are stored."""
    if is_plain(field):
        return _form_of_kind(field.logical_type)
    if any(node.is_blob for node in field.walk()):
        return None
    node = nest(field, version)
    if not seen_type(field, node.data_type)[1]:
        return None
    return layout_of(node.data_type) if isinstance(node, LeafNode) else NestedLayout.of(node)


@lru_cache(_FIELDS_KEPT)
def _form_of_kind(kind: str) -> ValueLayout | None:
    return layout_of(logical_type.storage_type_of(kind))


@dataclass(slots=True, eq=False)
class OpenedFields:
    """The fields of a file that were opened, and the last selections of them.

    Whoever opens one twice gets the same.
    """

    each: dict[Field, OpenedField] = field(default_factory=dict)
    recent: Recent[Selection] = field(default_factory=Recent)

    @property
    def memory_bytes(self) -> int:
        """How much memory the fields take, with their selections."""
        return _FIELD_BYTES * len(self.each) + sum(each.memory_bytes for each in self.recent)


def _are_same(fields: Sequence[Field], others: Sequence[Field]) -> bool:
    """Say whether these are the very same fields."""
    return fields is others or (len(fields) == len(others) and all(map(is_, fields, others)))


def users_schema(fields: Sequence[Field], data_types: Sequence[pa.DataType]) -> pa.Schema:
    """Return the schema of batches, given the types that users see of fields."""
    each = zip(fields, data_types, strict=True)
    return pa.schema([field.to_arrow().with_type(data_type) for field, data_type in each])


@dataclass(frozen=True, eq=False)
class Selection:
    """Fields that are read together, and what every such read needs to know of them.

    The reading goes by units: the fields `alone`, which are opened, and behind them `bundles`.
    """

    fields: tuple[Field, ...]
    alone: tuple[OpenedField, ...]
    bundles: tuple[Bundle, ...]
    num_rows: int
    _borders: list[Int64s | None] = field(default_factory=list, init=False)

    def borders(self, find: Callable[[Sequence[Field]], Int64s | None]) -> Int64s | None:
        """Return rows at which it is cheap to cut a read of fields alone, which are found once."""
        if not self._borders:
            self._borders.append(find([column.field for column in self.alone]))
        return self._borders[0]

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of batches, as users see them."""
        return users_schema(self.fields, self.data_types)

    @cached_property
    def data_types(self) -> list[pa.DataType]:
        """The type of each field, as users see it."""
        types = [column.data_type for column in self.alone]
        for bundle in self.bundles:
            types += [bundle.data_type] * len(bundle.field_indices)
        return self.in_order(types)

    @cached_property
    def units(self) -> list[OpenedField | Bundle]:
        """What is read for itself."""
        return [*self.alone, *self.bundles]

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""
        return _FIELD_BYTES * len(self.bundles) + 128 * len(self.fields)

    @cached_property
    def row_bytes(self) -> list[float]:
        """Estimate the decoded bytes per row of each unit."""
        alone = zip(self.alone, self._encoded_row_bytes, strict=False)
        bundled = zip(self.bundles, self._encoded_row_bytes[len(self.alone) :], strict=True)
        return [
            *(decoded_row_bytes(column.reader.data_type, encoded) for column, encoded in alone),
            *(
                len(bundle.field_indices)
                * decoded_row_bytes(bundle.data_type, encoded / len(bundle.field_indices))
                for bundle, encoded in bundled
            ),
        ]

    @cached_property
    def rows_at_once(self) -> int:
        """How many rows are never worth cutting."""
        fields = [
            *self.row_bytes[: len(self.alone)],
            *(
                bundled / len(bundle.field_indices)
                for bundle, bundled in zip(
                    self.bundles, self.row_bytes[len(self.alone) :], strict=True
                )
            ),
        ]
        return few_rows(sum(self.row_bytes), max(fields, default=0.0))

    @cached_property
    def is_packed(self) -> bool:
        """Whether decoding makes twice as many bytes as there are, which takes its time."""
        return 2 * sum(self._encoded_row_bytes) <= sum(self.row_bytes)

    @cached_property
    def _encoded_row_bytes(self) -> list[float]:
        rows, count = RowRange(0, self.num_rows), max(1, self.num_rows)
        return [
            *(column.reader.encoded_bytes(rows) / count for column in self.alone),
            *(bundle.encoded_bytes / count for bundle in self.bundles),
        ]

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        bundled = sum(bundle.encoded_bytes for bundle in self.bundles)
        share = bundled * len(rows) // max(1, self.num_rows)
        return share + sum(column.reader.encoded_bytes(rows) for column in self.alone)

    def part(self, places: tuple[int, ...]) -> tuple[Field, ...]:
        """Return some of the fields."""
        return tuple(self.fields[place] for place in places)

    def in_order(self, found: list[T]) -> list[T]:
        """Return what there is of each field, unit by unit, in the order of the fields."""
        if not self.bundles:
            return found
        return [found[at] for at in self._order]

    @cached_property
    def _order(self) -> list[int]:
        """Where each field is among the fields of all units."""
        bundled = [place for bundle in self.bundles for place in bundle.field_indices]
        rest = set(range(len(self.fields))).difference(bundled)
        order = [0] * len(self.fields)
        for at, place in enumerate([*sorted(rest), *bundled]):
            order[place] = at
        return order

"""The BLOOMFILTER index kind: prunes zones that cannot contain a value.

    zone        fragment 0, rows 0 to 8192     32 KiB of bits
    x = 'ab'    a bit of 'ab' is not set: pruned

It supports equality and membership. Nulls are stored exactly, in a separate row set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.split_block import BLOCK_BYTES, filter_bytes
from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    is_byte_strings,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.ordering import bits_of
from lancelet.index.parts.zones import (
    ZONE_FIELDS,
    ZONE_ROWS,
    NullRows,
    ZonedSegment,
    unmoved_zones,
    write_zones,
    zone_runs,
)
from lancelet.index.query import IsNull, OneOf, ScalarQuery
from lancelet.kernels import build_filters, probe_filters, xxh64_fixed, xxh64_many
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet

_FILE: Final = "bloomfilter.lance"
_ITEMS: Final = "bloomfilter_item"
_PROBABILITY: Final = "bloomfilter_probability"
_PROBABILITY_DEFAULT: Final = 0.00057
_VALUES_MAX: Final = 1000
"""Maximum number of values in a query; larger sets are likely to match every zone."""


class BloomFilterSegment(ZonedSegment):
    """An open segment of a BLOOMFILTER index."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the filters."""
        super().__init__(folder, _FILE, ("has_null", "bloom_filter_data"))
        filters = self._columns["bloom_filter_data"].cast(pa.large_binary())
        offsets = np.frombuffer(filters.buffers()[1], np.int64)[filters.offset :][
            : len(filters) + 1
        ]
        self._data = np.frombuffer(filters.buffers()[2] or b"", np.uint8)
        self._starts, self._sizes = offsets[:-1], np.diff(offsets)
        if len(self._sizes) and (
            self._sizes.min() < BLOCK_BYTES or (self._sizes % BLOCK_BYTES).any()
        ):
            raise CorruptDataError(
                "the size of a Bloom filter is not a multiple of its block size", path=folder.path
            )

    def statistics(self) -> dict[str, Any]:
        """Return the number of zones and the build parameters."""
        return {
            "type": "BloomFilter",
            "num_blocks": len(self.locations),
            "number_of_items": self.zone_rows,
            "probability": self.probability,
        }

    @property
    def zone_rows(self) -> int:
        """Number of rows per zone."""
        return int(self._file.metadata.get(_ITEMS, ZONE_ROWS))

    @property
    def probability(self) -> float:
        """False positive probability."""
        return float(self._file.metadata.get(_PROBABILITY, _PROBABILITY_DEFAULT))

    def _find_zones(self, query: ScalarQuery) -> npt.NDArray[np.bool_] | None:
        match query:
            case OneOf(values) if len(values) <= _VALUES_MAX:
                return self._with_any(values)
            case _:
                return None

    def _with_any(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the zones that may contain any of the values."""
        if pa.types.is_floating(values.type):
            if pc.any(pc.is_nan(values)).as_py():
                # NaN values with different bits have different hashes.
                return np.ones(len(self.locations), np.bool_)
            zeros = pa.array([0.0, -0.0]).cast(values.type)
            if pc.any(pc.equal(values, zeros[0])).as_py():
                values = pa.concat_arrays([values, zeros])
        matches = probe_filters(self._data, self._starts, self._sizes, hashes_of(values))
        mask: npt.NDArray[np.bool_] = np.logical_or.reduce(matches, axis=1)
        return mask


class BloomFilter(ScalarKind[BloomFilterSegment]):
    """The BLOOMFILTER index kind: a Bloom filter for each zone of rows."""

    name = "BLOOMFILTER"
    title = "BloomFilter"
    type_url = "/lance.index.pb.BloomFilterIndexDetails"
    newest_version = 0
    unsupported_message = (
        "a BLOOMFILTER index requires a column of integers, floats, times, strings or binary values"
    )
    addresses_since = 0
    can_remap = False  # zones depend on the fragments

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether the query matches nulls. All other results must be rechecked."""
        return isinstance(query, IsNull)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the format defines a hash for values of the type."""
        return bool(
            is_byte_strings(data_type)
            or pa.types.is_integer(data_type)
            or pa.types.is_float32(data_type)
            or pa.types.is_float64(data_type)
            or pa.types.is_date(data_type)
            or pa.types.is_time(data_type)
            or pa.types.is_timestamp(data_type)
        )

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Hash the values of each zone and write the filters."""
        zone_rows = parameters.values.get("number_of_items", ZONE_ROWS)
        probability = parameters.values.get("probability", _PROBABILITY_DEFAULT)
        if not isinstance(zone_rows, int) or zone_rows < 1 or not 0 < probability < 1:
            raise InvalidInputError(
                "number_of_items must be positive and probability between 0 and 1",
                number_of_items=zone_rows,
                probability=probability,
            )
        _write(rows, folder, zone_rows, probability)
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> BloomFilterSegment:  # noqa: ARG002
        """Open a segment."""
        return BloomFilterSegment(folder)

    def merge(
        self,
        segments: Sequence[BloomFilterSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Write unchanged zones of all segments, and zones of new rows."""
        zone_rows = max((segment.zone_rows for segment in segments), default=ZONE_ROWS)
        probability = min((each.probability for each in segments), default=_PROBABILITY_DEFAULT)
        unchanged = unmoved_zones(segments, moves, _SCHEMA)
        _write(rows, folder, zone_rows, probability, unchanged)
        return b""


def hashes_of(values: pa.Array) -> UInt64s:
    """Return the hash of each value. Values must not be null."""
    if is_byte_strings(values.type):
        wide = values.cast(pa.large_binary())
        offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset :][: len(wide) + 1]
        return xxh64_many(offsets, np.frombuffer(wide.buffers()[2] or b"", np.uint8))
    dtype = np.dtype(f"u{values.type.bit_width // 8}")
    return xxh64_fixed(bits_of(values, dtype))


_SCHEMA: Final = pa.schema(
    [
        *ZONE_FIELDS,
        pa.field("has_null", pa.bool_(), nullable=False),
        # Filters do not compress.
        pa.field(
            "bloom_filter_data",
            pa.binary(),
            nullable=False,
            metadata={"lance-encoding:compression": "none"},
        ),
    ]
)


def _filters(rows: IndexedRows, zone_rows: int, size: int, nulls: NullRows) -> Iterator[pa.Table]:
    """Yield the filters of each zone and add null rows to `nulls`."""
    for run in zone_runs(rows, zone_rows):
        nulls.add(run)
        null_counts = run.null_counts()
        stops = run.stops - np.cumsum(null_counts, dtype=np.int64)
        filters = build_filters(hashes_of(run.values.drop_null()), stops, size)
        columns = [*run.columns(), pa.array(null_counts > 0), _to_binary_array(filters, size)]
        yield pa.Table.from_arrays(columns, schema=_SCHEMA)


def _to_binary_array(data: Bytes, size: int) -> pa.Array:
    """Return a binary array of consecutive values of equal size."""
    offsets = np.arange(0, len(data) + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _write(
    rows: IndexedRows,
    folder: SegmentFolder,
    zone_rows: int,
    probability: float,
    unchanged: Iterable[tuple[pa.Table, RowSet]] = (),
) -> None:
    """Write unchanged zones and the zones of new rows."""
    fresh = partial(_filters, rows, zone_rows, filter_bytes(zone_rows, probability))
    facts = {_ITEMS: zone_rows, _PROBABILITY: probability}
    write_zones(folder, _FILE, _SCHEMA, unchanged, fresh, facts)

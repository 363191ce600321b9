"""Argument validation and constants shared by both kernel implementations."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels.faults import Fault, corrupt

_INT64: Final = np.dtype(np.int64)

_BYTE: Final = np.dtype(np.uint8)

_ROWS_MAX: Final = (1 << 31) - 1

_SYMBOL_BYTES_MAX: Final = 8


BLOCK: Final = 1024
"""Number of values in a bit-packed block."""

POSITIONS_MAX: Final = (1 << 31) - 1
"""Maximum number of values in a call that returns their positions."""

FILTER_BLOCK_BYTES: Final = 32
"""Size of a Bloom filter block in bytes."""

UNSIGNED: Final[dict[int, np.dtype[Any]]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
"""Unsigned integer types by bit width."""


def word_type(word_bits: int) -> np.dtype[Any]:
    """Return the unsigned integer type of `word_bits` bits."""
    if word_bits not in UNSIGNED:
        raise InvalidInputError("a word has 8, 16, 32 or 64 bits", word_bits=word_bits)
    return UNSIGNED[word_bits]


def as_bytes(array: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of an array; copy only if it is not contiguous."""
    if array.dtype is _BYTE and array.ndim == 1 and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def as_int64s(array: npt.ArrayLike) -> Int64s:
    """Return aligned, contiguous 64-bit integers; copy only if necessary."""
    # The check is ten times cheaper than `require`, which takes as long as some kernels.
    if type(array) is np.ndarray and array.dtype is _INT64 and array.flags.carray:
        return array
    return np.require(array, np.int64, ["C", "A"])


def slice_arrays(slices: ByteSlices, *per_slice: Int64s) -> tuple[Bytes, Int64s, Int64s]:
    """Return source, positions and sizes for a native kernel; raise if lengths differ."""
    for array in (slices.size, *per_slice):
        if len(array) != len(slices):
            raise InvalidInputError(
                "every slice needs one size and one count", slices=len(slices), found=len(array)
            )
    return slices.source, as_int64s(slices.position), as_int64s(slices.size)


def check_slices(slices: ByteSlices, counts: Int64s | None = None, *, kernel: str) -> None:
    """Raise unless slices are within their source, with one count each."""
    if counts is not None and len(counts) != len(slices):
        raise InvalidInputError(
            "every slice needs one count", kernel=kernel, slices=len(slices), counts=len(counts)
        )
    bad = (slices.position < 0) | (slices.size < 0)
    bad |= slices.size > slices.source.nbytes
    bad |= slices.position > slices.source.nbytes - slices.size
    if bad.any():
        raise corrupt(Fault.OUT_OF_SOURCE, kernel=kernel, index=int(bad.argmax()))


def check_layout(slices: ByteSlices, out_position: Int64s, out_bytes: int) -> None:
    """Raise unless output ranges are ascending, disjoint and within the output."""
    if out_bytes < 0 or len(out_position) != len(slices):
        raise InvalidInputError("every slice needs one position", bytes=out_bytes)
    ends = out_position + slices.size
    if len(slices) and (
        int(out_position[0]) < 0
        or int(ends.max()) > out_bytes
        or bool((out_position[1:] < ends[:-1]).any())
    ):
        raise InvalidInputError("output ranges must be ascending and in bounds", bytes=out_bytes)


def check_counts(counts: Int64s, *, max_count: int, kernel: str) -> None:
    """Raise unless counts are in [0, `max_count`], so their sum cannot overflow."""
    bad = (counts < 0) | (counts > max_count)
    if bad.any():
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=int(bad.argmax()))


def check_positions(counts: Int64s) -> int:
    """Return the number of values, or raise if positions exceed 32 bits."""
    total = int(counts.sum())
    if total > POSITIONS_MAX:
        raise InvalidInputError(
            "too many values for one call; compare fewer rows at a time", values=total
        )
    return total


def check_ranges(ranges: npt.NDArray[np.uint64]) -> None:
    """Raise unless there are pairs of a first number and a distance."""
    if not len(ranges) or len(ranges) % 2:
        raise InvalidInputError("ranges have a number and a distance each", numbers=len(ranges))


def check_packed_chunk(chunk: int) -> None:
    """Raise unless a packed chunk has 1 to 1024 values."""
    if not 0 < chunk <= BLOCK:
        raise InvalidInputError("a packed chunk holds 1 to 1024 values", chunk=chunk)


def check_packed_width(widths: Bytes, *, width: int) -> None:
    """Raise if any width exceeds `width`."""
    if len(widths) and int(widths.max()) > width:
        raise InvalidInputError(
            "a value exceeds the bit width",
            width=width,
            needed=int(widths.max()),
        )


def packs_tail(count: int, *, width: int, word_bits: int) -> bool:
    """Return whether the last `count` values are smaller as a padded block than unpacked."""
    return count > 0 and width * BLOCK < word_bits * count


def out_of_line_shape(
    data_bytes: int, *, width: int, count: int, word_bits: int
) -> tuple[int, int, bool]:
    """Return the sizes of the full blocks and of the tail, and whether the tail is unpacked."""
    kernel = "unpack_blocks"
    if not 0 <= width <= word_bits:
        raise corrupt(Fault.BAD_WIDTH, kernel=kernel, index=0)
    if count < 0:
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=0)
    block_bytes = width * (BLOCK // 8)
    full_bytes = count // BLOCK * block_bytes
    plain_bytes = count % BLOCK * (word_bits // 8)
    plain = count % BLOCK == 0 or data_bytes == full_bytes + plain_bytes
    tail_bytes = plain_bytes if plain else block_bytes
    if data_bytes < full_bytes + tail_bytes:
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=0)
    return full_bytes, tail_bytes, plain


CODES: Final = 256
"""Number of codes in a symbol table: 255 symbols and the escape."""


def check_tables(
    symbols: npt.NDArray[np.uint64],
    lengths: Bytes,
    table_indices: Int64s | None,
    *,
    chunks: int,
    kernel: str,
) -> None:
    """Raise unless symbol tables are valid: one table, or several with a table index per chunk.

    Several tables have 256 entries each; undefined codes have length 0.
    """
    if table_indices is None:
        check_symbols(symbols, lengths, kernel=kernel)
        return
    if len(symbols) != len(lengths) or len(symbols) % CODES or len(table_indices) != chunks:
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=len(symbols))
    if len(lengths) and int(lengths.max()) > _SYMBOL_BYTES_MAX:
        raise corrupt(Fault.BAD_CODE, kernel=kernel, index=int(lengths.argmax()))
    if len(table_indices) and not (
        int(table_indices.min()) >= 0 and int(table_indices.max()) < len(symbols) // CODES
    ):
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=len(symbols))


def check_symbols(symbols: npt.NDArray[np.uint64], lengths: Bytes, *, kernel: str) -> None:
    """Raise unless a symbol table has at most 255 symbols of 1 to 8 bytes."""
    if len(symbols) != len(lengths) or len(symbols) > 255:
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=len(symbols))
    bad = (lengths < 1) | (lengths > _SYMBOL_BYTES_MAX)
    if bad.any():
        raise corrupt(Fault.BAD_CODE, kernel=kernel, index=int(bad.argmax()))


def check_value_bytes(value_bytes: int) -> None:
    """Raise unless a value width is in a valid range."""
    if not 0 < value_bytes <= 1 << 31:
        raise InvalidInputError("a value has at least one byte", value_bytes=value_bytes)


def check_whole_values(values: Bytes, value_bytes: int) -> int:
    """Return the number of values; raise unless the size is a multiple of `value_bytes`."""
    check_value_bytes(value_bytes)
    if values.nbytes % value_bytes:
        raise InvalidInputError(
            "bytes are not a multiple of the size of a value", bytes=values.nbytes
        )
    return values.nbytes // value_bytes


def check_block_bytes(block_bytes: int) -> None:
    """Raise unless a checksum block has at least one byte."""
    if block_bytes <= 0:
        raise InvalidInputError("a block has at least one byte", block_bytes=block_bytes)


def check_seed(seed: int) -> None:
    """Raise unless a seed is an unsigned 64-bit integer."""
    if not 0 <= seed < 1 << 64:
        raise InvalidInputError("a seed is an unsigned 64-bit integer", seed=seed)


def check_numbers(values: npt.NDArray[Any]) -> None:
    """Raise unless values are native-endian numbers of 1, 2, 4 or 8 bytes."""
    if values.dtype.kind not in "iuf" or not values.dtype.isnative or values.itemsize > 8:
        raise InvalidInputError("numbers have 1, 2, 4 or 8 bytes", dtype=str(values.dtype))


def check_filters(counts: tuple[int, ...], filter_bytes: int | Int64s) -> None:
    """Raise unless filters consist of whole blocks and have a position each."""
    sizes = np.asarray(filter_bytes)
    if ((sizes < FILTER_BLOCK_BYTES) | (sizes % FILTER_BLOCK_BYTES != 0)).any():
        raise InvalidInputError("a filter has whole blocks", bytes=sizes.tolist())
    if len(set(counts)) > 1:
        raise InvalidInputError("every filter has a position and a size", counts=counts)


def check_partition(counts: Int64s, total: int, *, kernel: str) -> None:
    """Raise unless chunk counts add up to `total`."""
    if np.any(counts < 0) or int(counts.sum()) != total:
        raise InvalidInputError(
            "the counts of the chunks do not add up to the values", kernel=kernel
        )


Levels: TypeAlias = npt.NDArray[np.uint16]
Indices: TypeAlias = npt.NDArray[np.uint32]
"""Repetition or definition levels."""


def check_same_levels(*per_entry: npt.NDArray[Any] | None) -> None:
    """Raise unless all per-entry arrays have the same length."""
    if len({len(array) for array in per_entry if array is not None}) > 1:
        raise InvalidInputError("level arrays differ in length")


def check_run_counts(
    lengths: ByteSlices, counts: Int64s, value_bytes: int, length_bytes: int, *, kernel: str
) -> None:
    """Raise if a chunk claims more values than its run lengths can represent."""
    check_value_bytes(value_bytes)
    if length_bytes not in (1, 2, 4):
        raise InvalidInputError("run lengths have 1, 2 or 4 bytes", length_bytes=length_bytes)
    runs = lengths.size // length_bytes
    bad = (counts < 0) | (counts > runs * ((1 << 8 * length_bytes) - 1))
    if bad.any():
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=int(bad.argmax()))


def check_plane_sizes(slices: ByteSlices, counts: Int64s, value_bytes: int, *, kernel: str) -> None:
    """Raise unless each chunk has enough bytes for its values."""
    bad = (counts < 0) | (counts > slices.size // value_bytes)
    if bad.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(bad.argmax()))


def slices_of_sizes(source: Bytes, sizes: Int64s) -> ByteSlices:
    """Return consecutive slices of `source` with these sizes."""
    return ByteSlices(source, sizes.cumsum() - sizes, sizes)


LZ4_RATIO_MAX: Final = 255
"""Maximum compression ratio of an LZ4 block."""


def plain_sizes(
    slices: ByteSlices, out_sizes: Int64s | None, max_sizes: Int64s | None, *, kernel: str
) -> tuple[ByteSlices, Int64s]:
    """Return LZ4 blocks without size prefixes, and their validated uncompressed sizes.

    Sizes must not exceed `max_sizes`, if given.
    """
    blocks = slices
    if out_sizes is None:
        check_slices(slices, kernel=kernel)
        empty = slices.size == 0
        short = ~empty & (slices.size < 4)
        if short.any():
            raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(short.argmax()))
        nonempty = np.flatnonzero(~empty)
        head = slices.source[slices.position[nonempty][:, None] + np.arange(4)]
        out_sizes = np.zeros(len(slices), np.int64)
        out_sizes[nonempty] = head.view("<u4").reshape(-1)
        skip = np.where(empty, 0, 4)
        blocks = ByteSlices(slices.source, slices.position + skip, slices.size - skip)
    bad = (out_sizes < 0) | (out_sizes > (blocks.size + 1) * LZ4_RATIO_MAX)
    if max_sizes is not None:
        bad |= out_sizes > max_sizes
    if bad.any():
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=int(bad.argmax()))
    return blocks, out_sizes


def check_zone_rows(zone_rows: int) -> None:
    """Raise unless zones have at least one row."""
    if zone_rows <= 0:
        raise InvalidInputError("a zone has at least one row", zone_rows=zone_rows)


@lru_cache(16)
def log_terms(max_count: int) -> npt.NDArray[np.float64]:
    """Return n log2 n for n from 0 to `max_count`.

    >>> log_terms(4).tolist()
    [0.0, 0.0, 2.0, 4.754887502163468, 8.0]
    """
    found = np.array([count * math.log2(max(count, 1)) for count in range(max_count + 1)])
    found.flags.writeable = False
    return found


def check_distinct_count(count: int, max_count: int) -> None:
    """Raise unless value indices fit 32 bits and the limit is not negative."""
    if count > _ROWS_MAX or max_count < 0:
        raise InvalidInputError("value indices must fit 32 bits", count=count, max_count=max_count)


def check_step(count: int, step: int) -> None:
    """Raise unless there are values, of which every `step`-th is counted."""
    if not count > 0 or step < 1:
        raise InvalidInputError("there must be a value to count", count=count, step=step)


def check_distinct_limit(count: int, max_count: int) -> None:
    """Raise unless value indices fit 32 bits and the limit is positive."""
    if count > _ROWS_MAX or max_count < 1:
        raise InvalidInputError("value indices must fit 32 bits", count=count, max_count=max_count)


def check_zone_values(values: npt.NDArray[Any], zone_rows: int) -> None:
    """Raise unless zones have rows and values are native-endian numbers."""
    check_zone_rows(zone_rows)
    if values.dtype.kind not in "iuf" or not values.dtype.isnative:
        raise InvalidInputError("zones need integers or floats", dtype=str(values.dtype))


def check_validity(validity: Bytes, count: int) -> None:
    """Raise unless the bitmap has a bit per value."""
    if validity.nbytes < -(-count // 8):
        raise InvalidInputError("a value has no validity bit", count=count, bytes=validity.nbytes)


def check_documents(
    offsets: Int64s, data: Bytes, is_valid: npt.NDArray[np.bool_], *, kernel: str
) -> None:
    """Raise unless documents are within their data, with a validity flag each."""
    if len(offsets) != len(is_valid) + 1:
        raise InvalidInputError("every document needs a validity flag", documents=len(offsets) - 1)
    backwards = np.flatnonzero(np.diff(offsets) < 0)
    if len(backwards):
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(backwards[0]))
    if offsets[0] < 0 or offsets[-1] > data.nbytes:
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=0)


def check_buckets(count: int, bits: int) -> None:
    """Raise unless a bucket index can be built for `count` rows."""
    if not 1 <= bits <= 31 or count > _ROWS_MAX:
        raise InvalidInputError(
            "an index has 2 to 2**31 buckets and at most 2**31 - 1 rows", bits=bits, rows=count
        )


def check_bucket_count(starts: npt.NDArray[np.int32]) -> int:
    """Return the number of hash bits that select a bucket; raise unless it is valid."""
    buckets = len(starts) - 1
    bits = buckets.bit_length() - 1
    if bits < 1 or buckets != 1 << bits:
        raise InvalidInputError("the number of buckets is a power of two", found=buckets)
    return bits

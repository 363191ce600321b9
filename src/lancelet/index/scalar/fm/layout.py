"""Files of an FM index: one per partition, which concatenates the texts of its rows.

    part_0_fm.lance
    rows        bits of node 0 of a wavelet tree in blocks of 32 KiB, then node 1, ...,
                then the start of every 32nd suffix
    metadata    the tree, byte counts, row numbers, and the start of each text

Each text ends with the byte 255, and the last one also with 0. These bytes are replaced by spaces
within texts. `partition_fingerprint`, used by the reference to resume interrupted builds, is not
written.
"""

from __future__ import annotations

import heapq
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.kernels import WaveletTree, order_suffixes, rank_bits, unwind_text
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

_NAME: Final = re.compile(r"part_(\d{1,9})_fm\.lance")
_BLOCK_UINT64S: Final = 4096
_SAMPLE_ROWS: Final = 32
_SAMPLES: Final = 0xFFFFFFFF
"""Node id of the rows with samples."""
_SYMBOLS: Final = 256
_CODE_BITS_MAX: Final = 32
_END_OF_TEXT: Final = 0xFF
_BLANK: Final = 0x20
_REPLACED: Final = "lancelet:has_replaced_bytes"
"""Metadata key: whether bytes of texts were replaced. Unknown for files of other writers."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("node_id", pa.uint32(), nullable=False),
        pa.field("block_id", pa.uint32(), nullable=False),
        # The bits of a wavelet tree do not compress.
        pa.field(
            "words",
            pa.large_binary(),
            nullable=False,
            metadata={"lance-encoding:compression": "none"},
        ),
        pa.field("prefix_rank", pa.uint64(), nullable=False),
        pa.field("bit_len", pa.uint64(), nullable=False),
    ]
)


def part_name(number: int) -> str:
    """Return the file name of a partition."""
    return f"part_{number}_fm.lance"


def part_names(folder: SegmentFolder) -> list[str]:
    """Return the file names of all partitions. Raise if one is missing."""
    names = [file.path for file in folder.listed] or folder.store.list_names(folder.path)
    numbers = sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)
    if not numbers or numbers != list(range(len(numbers))):
        raise CorruptDataError(
            "missing partitions in an FM index", path=folder.path, found=numbers[:20]
        )
    return [part_name(number) for number in numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts in the indexed form, each ending with a reserved byte, and their row numbers.

    `starts` has an additional entry with the total length. The data ends with a 0 byte.
    """

    data: Bytes
    starts: Int64s
    numbers: UInt64s
    has_replaced: bool

    @staticmethod
    def from_array(texts: pa.Array, numbers: UInt64s, *, has_replaced: bool = False) -> Texts:
        """Convert non-null texts. `has_replaced` states whether bytes were already replaced."""
        plain, offsets = plain_bytes(texts)
        reserved = (plain == 0) | (plain == _END_OF_TEXT)
        if reserved.any():
            has_replaced = True
            plain = np.where(reserved, np.uint8(_BLANK), plain)
        starts = offsets + np.arange(len(offsets))
        data = np.empty(int(starts[-1]) + 1, np.uint8)
        is_text = np.ones(len(data), np.bool_)
        is_text[starts[1:] - 1] = is_text[-1] = False
        data[is_text] = plain
        data[starts[1:] - 1] = _END_OF_TEXT
        data[-1] = 0
        return Texts(data, starts, numbers, has_replaced)

    def values(self) -> pa.Array:
        """Return the texts as a binary array."""
        plain = self.data[(self.data != _END_OF_TEXT) & (self.data != 0)]
        offsets = self.starts - np.arange(len(self.starts))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(plain)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.numbers), buffers)


def plain_bytes(texts: pa.Array) -> tuple[Bytes, Int64s]:
    """Return the bytes and offsets of strings or binary values."""
    wide = texts.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    bounds = np.frombuffer(offsets, np.int64)[wide.offset :][: len(wide) + 1]
    if not len(bounds):
        bounds = np.zeros(1, np.int64)
    plain = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    return plain, bounds - bounds[0]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A partition of rows: wavelet tree, suffix samples, text starts and row numbers."""

    tree: WaveletTree
    samples: UInt64s
    sample_rows: int
    starts: UInt64s
    numbers: UInt64s
    has_replaced: bool

    @staticmethod
    def build(texts: Texts) -> Partition:
        """Sort the suffixes of at least one text."""
        order = order_suffixes(texts.data)
        return Partition(
            build_tree(texts.data[order - 1]),
            order[::_SAMPLE_ROWS].astype(np.uint64),
            _SAMPLE_ROWS,
            texts.starts[:-1].astype(np.uint64),
            texts.numbers,
            texts.has_replaced,
        )

    @staticmethod
    def empty() -> Partition:
        """Return a partition without rows."""
        no_values = np.empty(0, np.uint64)
        tree = build_tree(np.empty(0, np.uint8))
        return Partition(tree, no_values, _SAMPLE_ROWS, no_values, no_values, has_replaced=False)

    def renumbered(self, numbers: UInt64s) -> Partition:
        """Return the partition with new row numbers."""
        return replace(self, numbers=numbers)

    def texts(self) -> Texts:
        """Return the indexed texts."""
        data = unwind_text(self.tree)
        starts = np.append(self.starts.astype(np.int64), max(0, len(data) - 1))
        ends = data[starts[1:] - 1] if len(data) else data
        if np.any(ends != _END_OF_TEXT) or np.count_nonzero(data == _END_OF_TEXT) != len(ends):
            raise CorruptDataError("inconsistent text boundaries in an FM index")
        return Texts(data, starts, self.numbers, self.has_replaced)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        arrays = (self.samples, self.starts, self.numbers)
        return self.tree.memory_bytes + sum(array.nbytes for array in arrays)


def build_tree(column: Bytes) -> WaveletTree:
    """Build the Huffman-shaped wavelet tree of bytes.

    >>> build_tree(np.frombuffer(b"annb", np.uint8)).children.tolist()
    [-111, 1, -98, -99]
    """
    counts = np.zeros(_SYMBOLS + 1, np.int64)
    np.cumsum(np.bincount(column, minlength=_SYMBOLS), out=counts[1:])
    children = _huffman_children(np.diff(counts))
    nodes = len(children) // 2
    reachable = np.zeros((nodes, _SYMBOLS), np.bool_)
    for node in range(nodes - 1, -1, -1):
        for child in children[2 * node : 2 * node + 2].tolist():
            if child < 0:
                reachable[node, -1 - child] = True
            else:
                reachable[node] |= reachable[child]
    node_bits: list[UInt64s] = []
    bits = np.zeros(nodes, np.int64)
    pending = {0: column}
    for node in range(nodes):
        symbols = pending.pop(node)
        second = int(children[2 * node + 1])
        is_second = (reachable[second] if second >= 0 else np.arange(_SYMBOLS) == -1 - second)[
            symbols
        ]
        bits[node] = len(symbols)
        packed = np.zeros(-(-len(symbols) // 64) * 8, np.uint8)
        packed[: -(-len(symbols) // 8)] = np.packbits(is_second, bitorder="little")
        node_bits.append(packed.view("<u8"))
        for side, child in enumerate(children[2 * node : 2 * node + 2].tolist()):
            if child >= 0:
                pending[child] = symbols[is_second if side else ~is_second]
    starts = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.array([len(symbols) for symbols in node_bits], np.int64), out=starts[1:])
    all_bits = np.concatenate([np.empty(0, np.uint64), *node_bits]).astype(np.uint64, copy=False)
    return WaveletTree(all_bits, rank_bits(all_bits, starts), starts, bits, children, counts)


def _huffman_children(frequencies: Int64s) -> npt.NDArray[np.int32]:
    """Return the children of each node of a Huffman tree, parents first."""
    while True:
        heap = [
            (count, symbol, -1 - symbol)
            for symbol, count in enumerate(frequencies.tolist())
            if count
        ]
        if len(heap) < 2:
            # Texts contain at least the two separator bytes.
            return np.empty(0, np.int32)
        heapq.heapify(heap)
        nodes: list[tuple[int, int]] = []
        while len(heap) > 1:
            first, second = heapq.heappop(heap), heapq.heappop(heap)
            node = len(nodes)
            nodes.append((first[2], second[2]))
            heapq.heappush(heap, (first[0] + second[0], _SYMBOLS + node, node))
        ordered, depth = _depth_first(nodes)
        if depth <= _CODE_BITS_MAX:
            return ordered
        # Codes are limited to 32 bits; more uniform frequencies shorten the longest codes.
        frequencies = np.where(frequencies > 0, frequencies // 2 + 1, 0)


def _depth_first(nodes: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int32], int]:
    """Return the nodes of a tree in depth-first order, given a list with the root last."""
    children: list[int] = []
    pending, deepest = [(len(nodes) - 1, -1, 1)], 0
    while pending:
        node, link, depth = pending.pop()
        deepest = max(deepest, depth)
        if link >= 0:
            children[link] = len(children) // 2
        base = len(children)
        children += nodes[node]
        sides = [(child, base + side, depth + 1) for side, child in enumerate(nodes[node])]
        pending += [each for each in reversed(sides) if each[0] >= 0]
    return np.array(children, np.int32), deepest


def write_partition(partition: Partition, number: int, folder: SegmentFolder) -> None:
    """Write the file of a partition."""
    tree = partition.tree
    nodes = len(tree.bits)
    with folder.create(part_name(number), _SCHEMA) as file:
        num_blocks = 0
        for node in range(nodes):
            table = _blocks(tree, node)
            file.write(table)
            num_blocks += len(table)
        num_sample_blocks = -(-len(partition.samples) // _BLOCK_UINT64S)
        if num_sample_blocks:
            file.write(_sample_blocks(partition.samples))
        metadata = {
            "num_bwt_nodes": nodes,
            "bwt_len": tree.length,
            "num_sa_blocks": num_sample_blocks,
            "sa_samples_len": len(partition.samples),
            "total_wavelet_rows": num_blocks,
            "sa_sample_rate": partition.sample_rows,
            "alphabet_size": _SYMBOLS,
            "c_table": tree.counts.astype("<u8").tobytes().hex(),
            "huffman_codes": _codes(tree.children).hex(),
            "tree_topology": _topology(tree.children).hex(),
            "row_ids": partition.numbers.astype("<u8").tobytes().hex(),
            "doc_start_positions": partition.starts.astype("<u8").tobytes().hex(),
            _REPLACED: str(partition.has_replaced).lower(),
        }
        for key, value in metadata.items():
            file.add_schema_metadata(key, str(value))


def _blocks(tree: WaveletTree, node: int) -> pa.Table:
    """Return the rows of a node: its bits in blocks, and the rank before each block."""
    start, stop = int(tree.starts[node]), int(tree.starts[node + 1])
    firsts = np.arange(start, stop, _BLOCK_UINT64S) if stop > start else np.array([start])
    blocks = [
        tree.bit_words[first : min(first + _BLOCK_UINT64S, stop)] for first in firsts.tolist()
    ]
    return _rows(node, blocks, tree.ranks[firsts + node], int(tree.bits[node]))


def _sample_blocks(samples: UInt64s) -> pa.Table:
    firsts = range(0, len(samples), _BLOCK_UINT64S)
    blocks = [samples[first : first + _BLOCK_UINT64S] for first in firsts]
    return _rows(_SAMPLES, blocks, np.zeros(len(blocks)), len(samples))


def _rows(node: int, blocks: list[UInt64s], ranks: npt.NDArray[Any], length: int) -> pa.Table:
    count = len(blocks)
    columns = [
        pa.array(np.full(count, node, np.uint32)),
        pa.array(np.arange(count, dtype=np.uint32)),
        pa.array([block.astype("<u8").tobytes() for block in blocks], pa.large_binary()),
        pa.array(ranks.astype(np.uint64)),
        pa.array(np.full(count, length, np.uint64)),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _paths(children: npt.NDArray[np.int32]) -> dict[int, list[tuple[int, int]]]:
    """Return the path from the root to each byte as pairs of node and side."""
    node_paths: list[list[tuple[int, int]]] = [[] for _ in range(len(children) // 2)]
    byte_paths: dict[int, list[tuple[int, int]]] = {}
    for index, child in enumerate(children.tolist()):
        node, side = divmod(index, 2)
        path = [*node_paths[node], (node, side)]
        if child >= 0:
            node_paths[child] = path
        else:
            byte_paths[-1 - child] = path
    return byte_paths


def _codes(children: npt.NDArray[np.int32]) -> bytes:
    """Encode the code, code length and path of each byte."""
    paths, data = _paths(children), bytearray()
    for symbol in range(_SYMBOLS):
        path = paths.get(symbol, [])
        code = sum(side << bit for bit, (_, side) in enumerate(reversed(path)))
        data += code.to_bytes(4, "little") + len(path).to_bytes(1, "little")
        data += len(path).to_bytes(2, "little")
        data += b"".join(node.to_bytes(4, "little") for node, _ in path)
    return bytes(data)


_CHILD: Final = np.dtype([("is_leaf", "u1"), ("value", "<u4")])


def _topology(children: npt.NDArray[np.int32]) -> bytes:
    """Encode the number of nodes and their children: 0 and a node, or 1 and a byte."""
    stored = np.empty(len(children), _CHILD)
    stored["is_leaf"] = children < 0
    stored["value"] = np.where(children < 0, -1 - children, children)
    return (len(children) // 2).to_bytes(4, "little") + stored.tobytes()


def read_partition(file: StoredFile, path: str) -> Partition:
    """Read a whole partition. The kernels validate the tree."""
    metadata = _Metadata(file.metadata, path)
    num_blocks = metadata.number("total_wavelet_rows")
    num_sample_blocks = metadata.number("num_sa_blocks")
    if num_blocks + num_sample_blocks > file.num_rows:
        raise metadata.error("num_sa_blocks")
    counts = metadata.numbers("c_table").astype(np.int64)
    numbers, starts = metadata.numbers("row_ids"), metadata.numbers("doc_start_positions")
    children = metadata.children()
    samples = _to_uint64s(
        file.read(["words"], RowRange(num_blocks, num_blocks + num_sample_blocks))
    )
    node_bits, word_starts, bits = _nodes(file, num_blocks, len(children) // 2, path)
    length = metadata.number("bwt_len")
    if len(counts) != _SYMBOLS + 1 or counts[-1] != length or length > 64 * len(node_bits):
        raise metadata.error("c_table")
    if len(starts) != len(numbers):
        raise metadata.error("row_ids")
    is_ordered = bool(np.all(starts[1:] > starts[:-1]))
    if len(starts) and not (is_ordered and starts[0] == 0 and int(starts[-1]) < length - 1):
        raise metadata.error("doc_start_positions")
    if bool(length) != bool(len(starts)):
        raise metadata.error("bwt_len")
    rate = metadata.number("sa_sample_rate", _SAMPLE_ROWS)
    samples = samples[: metadata.number("sa_samples_len")]
    if rate < 1 or len(samples) < -(-length // rate):
        raise metadata.error("sa_samples_len")
    tree = WaveletTree(
        node_bits, rank_bits(node_bits, word_starts), word_starts, bits, children, counts
    )
    has_replaced = metadata.get(_REPLACED) != "false"
    return Partition(tree, samples, rate, starts, numbers, has_replaced)


def _nodes(
    file: StoredFile, num_blocks: int, nodes: int, path: str
) -> tuple[UInt64s, Int64s, Int64s]:
    """Return the bits of all nodes, the start of each, and their lengths in bits."""
    ids, blocks, lengths = file.read(["node_id", "words", "bit_len"], RowRange(0, num_blocks))
    node_ids = ids.to_numpy().astype(np.int64)
    # Each node has at least one block, and blocks are sorted by node.
    firsts = np.searchsorted(node_ids, np.arange(nodes + 1))
    if np.any(np.diff(node_ids) < 0) or np.any(np.diff(firsts) < 1) or firsts[-1] != num_blocks:
        raise CorruptDataError("unsorted blocks in an FM index", path=path)
    _, offsets = plain_bytes(blocks)
    if np.any(offsets % 8):
        raise CorruptDataError(
            "the size of an FM index block is not a multiple of 8 bytes", path=path
        )
    starts = offsets[firsts] // 8
    bits = lengths.to_numpy()[firsts[:-1]].astype(np.int64)
    return _to_uint64s([blocks]), starts, bits


def _to_uint64s(columns: list[pa.Array]) -> UInt64s:
    plain, _ = plain_bytes(columns[0])
    values = np.frombuffer(plain[: len(plain) // 8 * 8].tobytes(), "<u8")
    return values if sys.byteorder == "little" else values.astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The text metadata of a file."""

    entries: Mapping[str, str]
    path: str

    def get(self, key: str) -> str | None:
        return self.entries.get(key)

    def number(self, key: str, default: int | None = None) -> int:
        text = self.entries.get(key, "" if default is None else str(default))
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise self.error(key)
        return int(text)

    def bytes(self, key: str) -> bytes:
        try:
            return bytes.fromhex(self.entries[key])
        except (KeyError, ValueError) as error:
            raise self.error(key) from error

    def numbers(self, key: str) -> UInt64s:
        data = self.bytes(key)
        if len(data) % 8:
            raise self.error(key)
        return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)

    def children(self) -> npt.NDArray[np.int32]:
        key = "tree_topology"
        data = self.bytes(key)
        count = int.from_bytes(data[:4], "little")
        if len(data) != 4 + 2 * count * _CHILD.itemsize or count >= _SYMBOLS:
            raise self.error(key)
        stored = np.frombuffer(data[4:], _CHILD)
        values = stored["value"].astype(np.int64)
        if np.any(values >= _SYMBOLS):
            raise self.error(key)
        return np.where(stored["is_leaf"] > 0, -1 - values, values).astype(np.int32)

    def error(self, key: str) -> CorruptDataError:
        return CorruptDataError("invalid metadata in an FM index", path=self.path, entry=key)

"""The files of an FM index: a partition of the rows each, whose texts are one.

    part_0_fm.lance
    rows        bits of node 0 of a wavelet tree, in blocks of 32 KiB, of node 1, ...,
                where every 32nd suffix starts
    metadata    the tree, how often there is each byte, the rows, where the text of each starts

A text ends with the byte 255 and all of them with a 0; where texts have these bytes themselves
they are blanks. `partition_fingerprint`, by which the reference goes on with a build that was cut
short, is not written.
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
from lancelet.kernels import WaveletTree, order_suffixes, rank_bits, unwind_text
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

_NAME: Final = re.compile(r"part_(\d{1,9})_fm\.lance")
_BLOCK_WORDS: Final = 4096
_SAMPLE_ROWS: Final = 32
_SAMPLES: Final = 0xFFFFFFFF
"""The node of rows that have samples."""
_SYMBOLS: Final = 256
_CODE_BITS_MAX: Final = 32
_END_OF_TEXT: Final = 0xFF
_BLANK: Final = 0x20
_REPLACED: Final = "lancelet:has_replaced_bytes"
"""Whether texts had bytes that are blanks in the index; of files of others it is not known."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("node_id", pa.uint32(), nullable=False),
        pa.field("block_id", pa.uint32(), nullable=False),
        # Bits of such a tree do not compress, so nobody should try.
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
    """Return the name of the file of a partition."""
    return f"part_{number}_fm.lance"


def part_names(folder: SegmentFolder) -> list[str]:
    """Return the files of the partitions, none of which may be missing."""
    names = [file.path for file in folder.listed] or folder.store.list_names(folder.path)
    numbers = sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)
    if not numbers or numbers != list(range(len(numbers))):
        raise CorruptDataError(
            "partitions of an FM index are missing", path=folder.path, found=numbers[:20]
        )
    return [part_name(number) for number in numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts as they are indexed, each closed by a byte that none has, and the number of each row.

    `starts` has one more entry: how long they are together. All of it is closed by a 0.
    """

    data: Bytes
    starts: Int64s
    numbers: UInt64s
    has_replaced: bool

    @staticmethod
    def of(texts: pa.Array, numbers: UInt64s, *, has_replaced: bool = False) -> Texts:
        """Return texts, none of which is null; of those of an index bytes may be replaced."""
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
        """Return the texts as byte strings."""
        plain = self.data[(self.data != _END_OF_TEXT) & (self.data != 0)]
        offsets = self.starts - np.arange(len(self.starts))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(plain)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.numbers), buffers)


def plain_bytes(texts: pa.Array) -> tuple[Bytes, Int64s]:
    """Return the bytes of texts or byte strings, and where each begins, and the last ends."""
    wide = texts.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    places = np.frombuffer(offsets, np.int64)[wide.offset :][: len(wide) + 1]
    if not len(places):
        places = np.zeros(1, np.int64)
    plain = np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]
    return plain, places - places[0]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Some of the rows: the tree of their texts, where each starts, and samples of suffixes."""

    tree: WaveletTree
    samples: UInt64s
    sample_rows: int
    starts: UInt64s
    numbers: UInt64s
    has_replaced: bool

    @staticmethod
    def of(texts: Texts) -> Partition:
        """Sort the suffixes of texts, one at least."""
        order = order_suffixes(texts.data)
        return Partition(
            tree_of(texts.data[order - 1]),
            order[::_SAMPLE_ROWS].astype(np.uint64),
            _SAMPLE_ROWS,
            texts.starts[:-1].astype(np.uint64),
            texts.numbers,
            texts.has_replaced,
        )

    @staticmethod
    def empty() -> Partition:
        """Return a partition of no rows."""
        nothing = np.empty(0, np.uint64)
        tree = tree_of(np.empty(0, np.uint8))
        return Partition(tree, nothing, _SAMPLE_ROWS, nothing, nothing, has_replaced=False)

    def renumbered(self, numbers: UInt64s) -> Partition:
        """Return the same texts, of rows with other numbers."""
        return replace(self, numbers=numbers)

    def texts(self) -> Texts:
        """Return the texts as they are indexed."""
        data = unwind_text(self.tree)
        starts = np.append(self.starts.astype(np.int64), max(0, len(data) - 1))
        ends = data[starts[1:] - 1] if len(data) else data
        if np.any(ends != _END_OF_TEXT) or np.count_nonzero(data == _END_OF_TEXT) != len(ends):
            raise CorruptDataError("texts of an FM index do not end where others start")
        return Texts(data, starts, self.numbers, self.has_replaced)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""
        arrays = (self.samples, self.starts, self.numbers)
        return self.tree.memory_bytes + sum(array.nbytes for array in arrays)


def tree_of(column: Bytes) -> WaveletTree:
    """Return the wavelet tree of bytes: frequent ones are near its root.

    >>> tree_of(np.frombuffer(b"annb", np.uint8)).children.tolist()
    [-111, 1, -98, -99]
    """
    counts = np.zeros(_SYMBOLS + 1, np.int64)
    np.cumsum(np.bincount(column, minlength=_SYMBOLS), out=counts[1:])
    children = _children_of(np.diff(counts))
    nodes = len(children) // 2
    below = np.zeros((nodes, _SYMBOLS), np.bool_)
    for node in range(nodes - 1, -1, -1):
        for child in children[2 * node : 2 * node + 2].tolist():
            if child < 0:
                below[node, -1 - child] = True
            else:
                below[node] |= below[child]
    words: list[UInt64s] = []
    bits = np.zeros(nodes, np.int64)
    waiting = {0: column}
    for node in range(nodes):
        own = waiting.pop(node)
        second = int(children[2 * node + 1])
        is_second = (below[second] if second >= 0 else np.arange(_SYMBOLS) == -1 - second)[own]
        bits[node] = len(own)
        packed = np.zeros(-(-len(own) // 64) * 8, np.uint8)
        packed[: -(-len(own) // 8)] = np.packbits(is_second, bitorder="little")
        words.append(packed.view("<u8"))
        for side, child in enumerate(children[2 * node : 2 * node + 2].tolist()):
            if child >= 0:
                waiting[child] = own[is_second if side else ~is_second]
    starts = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.array([len(own) for own in words], np.int64), out=starts[1:])
    joined = np.concatenate([np.empty(0, np.uint64), *words]).astype(np.uint64, copy=False)
    return WaveletTree(joined, rank_bits(joined, starts), starts, bits, children, counts)


def _children_of(frequencies: Int64s) -> npt.NDArray[np.int32]:
    """Return the children of each node of a Huffman tree, parents before children."""
    while True:
        waiting = [
            (count, symbol, -1 - symbol)
            for symbol, count in enumerate(frequencies.tolist())
            if count
        ]
        if len(waiting) < 2:
            # Texts have two bytes at least, those that close them.
            return np.empty(0, np.int32)
        heapq.heapify(waiting)
        joined: list[tuple[int, int]] = []
        while len(waiting) > 1:
            first, second = heapq.heappop(waiting), heapq.heappop(waiting)
            place = len(joined)
            joined.append((first[2], second[2]))
            heapq.heappush(waiting, (first[0] + second[0], _SYMBOLS + place, place))
        ordered, depth = _from_the_root(joined)
        if depth <= _CODE_BITS_MAX:
            return ordered
        # Codes are stored in 32 bits; frequencies that are nearer to each other make them shorter.
        frequencies = np.where(frequencies > 0, frequencies // 2 + 1, 0)


def _from_the_root(joined: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int32], int]:
    """Return the nodes of a tree, the last of which is its root, in the order of a walk from it."""
    children: list[int] = []
    waiting, deepest = [(len(joined) - 1, -1, 1)], 0
    while waiting:
        place, link, depth = waiting.pop()
        deepest = max(deepest, depth)
        if link >= 0:
            children[link] = len(children) // 2
        base = len(children)
        children += joined[place]
        sides = [(child, base + side, depth + 1) for side, child in enumerate(joined[place])]
        waiting += [each for each in reversed(sides) if each[0] >= 0]
    return np.array(children, np.int32), deepest


def write_partition(partition: Partition, number: int, folder: SegmentFolder) -> None:
    """Write a partition as the file of a segment with that number."""
    tree = partition.tree
    nodes = len(tree.bits)
    with folder.create(part_name(number), _SCHEMA) as file:
        num_blocks = 0
        for node in range(nodes):
            table = _blocks(tree, node)
            file.write(table)
            num_blocks += len(table)
        num_sample_blocks = -(-len(partition.samples) // _BLOCK_WORDS)
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
    """Return the rows of a node: its bits, and how many are set before each block."""
    start, stop = int(tree.starts[node]), int(tree.starts[node + 1])
    firsts = np.arange(start, stop, _BLOCK_WORDS) if stop > start else np.array([start])
    blocks = [tree.words[first : min(first + _BLOCK_WORDS, stop)] for first in firsts.tolist()]
    return _rows(node, blocks, tree.ranks[firsts + node], int(tree.bits[node]))


def _sample_blocks(samples: UInt64s) -> pa.Table:
    firsts = range(0, len(samples), _BLOCK_WORDS)
    blocks = [samples[first : first + _BLOCK_WORDS] for first in firsts]
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
    """Return the nodes on the way to each byte, and which child is taken at each."""
    on_way: list[list[tuple[int, int]]] = [[] for _ in range(len(children) // 2)]
    found: dict[int, list[tuple[int, int]]] = {}
    for place, child in enumerate(children.tolist()):
        node, side = divmod(place, 2)
        path = [*on_way[node], (node, side)]
        if child >= 0:
            on_way[child] = path
        else:
            found[-1 - child] = path
    return found


def _codes(children: npt.NDArray[np.int32]) -> bytes:
    """Return, for each byte, the bits that lead to it, how many they are, and the nodes passed."""
    paths, data = _paths(children), bytearray()
    for symbol in range(_SYMBOLS):
        path = paths.get(symbol, [])
        code = sum(side << place for place, (_, side) in enumerate(reversed(path)))
        data += code.to_bytes(4, "little") + len(path).to_bytes(1, "little")
        data += len(path).to_bytes(2, "little")
        data += b"".join(node.to_bytes(4, "little") for node, _ in path)
    return bytes(data)


_CHILD: Final = np.dtype([("is_leaf", "u1"), ("value", "<u4")])


def _topology(children: npt.NDArray[np.int32]) -> bytes:
    """Return how many nodes there are, and the children of each: 0 and a node, or 1 and a byte."""
    stored = np.empty(len(children), _CHILD)
    stored["is_leaf"] = children < 0
    stored["value"] = np.where(children < 0, -1 - children, children)
    return (len(children) // 2).to_bytes(4, "little") + stored.tobytes()


def read_partition(file: StoredFile, path: str) -> Partition:
    """Read a partition, all of it; its kernels check what is in the tree."""
    metadata = _Metadata(file.metadata, path)
    num_blocks = metadata.number("total_wavelet_rows")
    num_sample_blocks = metadata.number("num_sa_blocks")
    if num_blocks + num_sample_blocks > file.num_rows:
        raise metadata.error("num_sa_blocks")
    counts = metadata.numbers("c_table").astype(np.int64)
    numbers, starts = metadata.numbers("row_ids"), metadata.numbers("doc_start_positions")
    children = metadata.children()
    samples = _words_of(file.read(["words"], RowRange(num_blocks, num_blocks + num_sample_blocks)))
    words, word_starts, bits = _nodes(file, num_blocks, len(children) // 2, path)
    length = metadata.number("bwt_len")
    if len(counts) != _SYMBOLS + 1 or counts[-1] != length or length > 64 * len(words):
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
    tree = WaveletTree(words, rank_bits(words, word_starts), word_starts, bits, children, counts)
    has_replaced = metadata.get(_REPLACED) != "false"
    return Partition(tree, samples, rate, starts, numbers, has_replaced)


def _nodes(
    file: StoredFile, num_blocks: int, nodes: int, path: str
) -> tuple[UInt64s, Int64s, Int64s]:
    """Return the words of all nodes, where those of each start, and how many bits each has."""
    ids, blocks, lengths = file.read(["node_id", "words", "bit_len"], RowRange(0, num_blocks))
    own = ids.to_numpy().astype(np.int64)
    # Each node has a block at least, and blocks lie in the order of their nodes.
    firsts = np.searchsorted(own, np.arange(nodes + 1))
    if np.any(np.diff(own) < 0) or np.any(np.diff(firsts) < 1) or firsts[-1] != num_blocks:
        raise CorruptDataError("blocks of an FM index are not in order", path=path)
    _, offsets = plain_bytes(blocks)
    if np.any(offsets % 8):
        raise CorruptDataError("blocks of an FM index are not made of words", path=path)
    starts = offsets[firsts] // 8
    bits = lengths.to_numpy()[firsts[:-1]].astype(np.int64)
    return _words_of([blocks]), starts, bits


def _words_of(columns: list[pa.Array]) -> UInt64s:
    plain, _ = plain_bytes(columns[0])
    words = np.frombuffer(plain[: len(plain) // 8 * 8].tobytes(), "<u8")
    return words if sys.byteorder == "little" else words.astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The metadata of a file, all of which is text."""

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
        return CorruptDataError(
            "an FM index says something impossible of itself", path=self.path, entry=key
        )

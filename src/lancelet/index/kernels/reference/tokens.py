"""Tokens of texts (runs of characters of a set), token ids, and sorting of pairs.

    "to be, or"   members a-z      tokens 0..2  3..5  7..9
    slices        to be to         ids 0 1 0

A character set is a bitmap; invalid UTF-8 is in no set.

sort_pairs is stable:

    keys      7 3 7 0      values  10 11 12 13
    sorted    0 3 7 7              13 11 10 12
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels.reference.characters import check_texts, read_character
from lancelet.index.kernels.tokens import TokenTable
from lancelet.kernels.arguments import check_slices
from lancelet.kernels.faults import Fault, corrupt

UInt32s = npt.NDArray[np.uint32]

UInt64s = npt.NDArray[np.uint64]


def find_tokens(offsets: Int64s, data: Bytes, members: Bytes) -> tuple[ByteSlices, Int64s]:
    """Return the tokens of texts, and the number of tokens per text."""
    check_texts(offsets, data, kernel="find_tokens")
    starts: list[int] = []
    sizes: list[int] = []
    counts: list[int] = []
    source = data.tobytes()
    for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        before = len(starts)
        token = -1
        at = first
        while at < last:
            code, size = read_character(source, at, last)
            if code < len(members) * 8 and members[code >> 3] >> (code & 7) & 1:
                token = at if token < 0 else token
            elif token >= 0:
                starts.append(token)
                sizes.append(at - token)
                token = -1
            at += size
        if token >= 0:
            starts.append(token)
            sizes.append(last - token)
        counts.append(len(starts) - before)
    tokens = ByteSlices(data, np.array(starts, np.int64), np.array(sizes, np.int64))
    return tokens, np.array(counts, np.int64)


def assign_token_ids(slices: ByteSlices, table: TokenTable) -> UInt32s:
    """Return the token id of each slice; new tokens are added to the table."""
    check_slices(slices, kernel="assign_token_ids")
    ids_by_token = {token: number for number, token in enumerate(table.tokens(0))}
    ids = np.empty(len(slices), np.uint32)
    source = slices.source.tobytes()
    ends = (slices.position + slices.size).tolist()
    for index, (start, end) in enumerate(zip(slices.position.tolist(), ends, strict=True)):
        token = source[start:end]
        number = ids_by_token.setdefault(token, len(ids_by_token))
        if number == len(table):
            _append(table, token)
        ids[index] = number
    return ids


def _append(table: TokenTable, token: bytes) -> None:
    """Append a new token; slots and hashes are used by the native kernel only."""
    table.grow(len(token))
    number, used = table.state.tolist()
    table.text[used : used + len(token)] = np.frombuffer(token, np.uint8)
    table.ends[number] = used + len(token)
    table.state[:] = number + 1, used + len(token)


def counting_order(keys: UInt32s, num_keys: int) -> UInt32s:
    """Return the indices that sort keys; stable."""
    large = keys >= num_keys
    if large.any():
        raise corrupt(Fault.BAD_INDEX, kernel="counting_order", index=int(large.argmax()))
    return np.argsort(keys, kind="stable").astype(np.uint32)


def sort_pairs(keys: UInt64s, values: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Return keys in ascending order and their values; stable."""
    if len(keys) != len(values):
        raise corrupt(Fault.BAD_LENGTH, kernel="sort_pairs", index=0)
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]

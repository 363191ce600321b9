"""Segments as the first releases wrote them: one partition, and a row for every occurrence.

    tokens.lance     _token, _token_id                   options in the metadata, as `tokenizer`
    docs.lance       _rowid, _num_tokens
    invert.lance     _rowid, _frequency, _position       rows of token i from offsets[i] on

Such segments are small, as nothing is packed in them, so they are read as a whole.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import CorruptDataError
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.inverted.partition import MemoryPartition
from lancelet.index.inverted.postings import Postings, in_order
from lancelet.index.inverted.tokens import SortedTokens, all_tokens
from lancelet.index.text.options import TextOptions

UInt32s = npt.NDArray[np.uint32]

TOKENS: Final = "tokens.lance"
_OPTIONS: Final = "tokenizer"
_OFFSETS: Final = "offsets"


def open_flat(folder: SegmentFolder) -> tuple[TextOptions, MemoryPartition]:
    """Return what texts were cut by, and the documents."""
    files = [folder.open(name) for name in (TOKENS, "docs.lance", "invert.lance")]
    try:
        return _read(*files)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptDataError(
            "a text index of an old release cannot be read", path=folder.path, found=str(error)
        ) from error


def _read(
    tokens: StoredFile, docs: StoredFile, occurrences: StoredFile
) -> tuple[TextOptions, MemoryPartition]:
    options = json.loads(tokens.metadata.get(_OPTIONS, "{}"))
    texts, ids = tokens.read(["_token", "_token_id"])
    names = all_tokens(SortedTokens(texts, ids.to_numpy()), tokens.num_rows)
    numbers, lengths = (column.to_numpy() for column in docs.read(["_rowid", "_num_tokens"]))
    own, freqs = occurrences.read(["_rowid", "_frequency"])
    starts = np.array(json.loads(occurrences.metadata[_OFFSETS]), np.int64)
    counts = np.diff(starts, append=occurrences.num_rows)
    if len(starts) != len(names) or np.any(counts < 0) or starts[:1].any():
        raise ValueError("token lists overlap")
    order = np.argsort(numbers)
    places = np.searchsorted(numbers, own.to_numpy(), sorter=order)
    found = order[np.minimum(places, len(order) - 1)]
    if np.any(numbers[found] != own.to_numpy()):
        raise ValueError("a token is in a document that is not listed")
    with_position = "_position" in occurrences.schema.names
    often = freqs.to_numpy().astype(np.uint32)
    postings = Postings(
        np.repeat(np.arange(len(names), dtype=np.uint32), counts),
        found.astype(np.uint32),
        often,
        _positions(occurrences, often) if with_position else None,
    )
    partition = MemoryPartition(names, in_order(postings), numbers, lengths)
    return TextOptions.of({**options, "with_position": with_position}), partition


def _positions(occurrences: StoredFile, freqs: UInt32s) -> UInt32s:
    (lists,) = occurrences.read(["_position"])
    if np.any(lists.value_lengths().to_numpy() != freqs):
        raise ValueError("a document has not as many positions as tokens")
    found: UInt32s = lists.flatten().to_numpy().astype(np.uint32)
    return found

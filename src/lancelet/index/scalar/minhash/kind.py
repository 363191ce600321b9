"""The MINHASHLSH index kind: near-duplicate search. It does not support filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.scalar.minhash.search import MinHashSegment, Signatures, write_signatures
from lancelet.index.scalar.minhash.signatures import Settings, Signer
from lancelet.index.text.elements import is_text
from lancelet.rowids.address import NO_ADDRESS


class MinHash(ScalarKind[MinHashSegment]):
    """The MINHASHLSH index kind: a signature per text, and the keys of its bands."""

    name = "MINHASHLSH"
    title = "MinHashLsh"
    type_url = "/lance.index.pb.MinHashLshIndexDetails"
    newest_version = 1
    unsupported_message = "MinHash LSH index can only be created on a string column"
    can_remap = True

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return the settings as parameters."""
        settings = Settings.parse(details)
        text = settings.text.as_params()
        return {
            "num_hashes": settings.num_hashes,
            "num_bands": settings.num_bands,
            "shingle_size": settings.shingle_size,
            "tokenizer": text,
        }

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is a string."""
        return is_text(data_type) or bool(pa.types.is_string_view(data_type))

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Compute and write the signature of each text."""
        settings = Settings.from_parameters(parameters.values)
        write_signatures(_sign_rows(rows, settings), settings, folder)
        return settings.render()

    def open(self, folder: SegmentFolder, details: bytes) -> MinHashSegment:
        """Open a segment."""
        return MinHashSegment(folder, Settings.parse(details))

    def merge(
        self,
        segments: Sequence[MinHashSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge the signatures of all segments and new rows."""
        settings = segments[0].settings if segments else Settings()
        others = [each.settings for each in segments if each.settings != settings]
        if others:
            raise InvalidInputError(
                "segments with different MinHash settings cannot be merged; create the index again",
                expected=str(settings),
                found=str(others[0]),
            )
        old = (_remap_rows(each.parts(), move) for each, move in zip(segments, moves, strict=True))
        parts = chain(*old, _sign_rows(rows, settings))
        write_signatures(parts, settings, folder)
        return settings.render()


def _sign_rows(rows: IndexedRows, settings: Settings) -> Iterator[Signatures]:
    signer = Signer(settings)
    for texts, numbers in rows.parts:
        signatures, indices = signer.sign(texts)
        yield signatures, numbers[indices]


def _remap_rows(parts: Iterable[Signatures], move: Move) -> Iterator[Signatures]:
    for signatures, numbers in parts:
        moved = move(numbers)
        remaining = moved != NO_ADDRESS
        yield signatures[remaining], moved[remaining]

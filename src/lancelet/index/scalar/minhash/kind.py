"""The MINHASHLSH kind: texts that are nearly the same as a wanted one, none of them by filters."""

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
from lancelet.index.scalar.minhash.search import MinHashSegment, Signed, write_signatures
from lancelet.index.scalar.minhash.signatures import Settings, Signer
from lancelet.index.text.elements import is_text
from lancelet.rowids.address import NO_ADDRESS


class MinHash(ScalarKind[MinHashSegment]):
    """A signature of each text, and the keys of its bands."""

    name = "MINHASHLSH"
    title = "MinHashLsh"
    type_url = "/lance.index.pb.MinHashLshIndexDetails"
    newest_version = 1
    unsupported_message = "MinHash LSH index can only be created on a string column"
    can_remap = True

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return how signatures are made, as parameters that make others like them."""
        settings = Settings.parse(details)
        text = settings.text.as_params()
        return {
            "num_hashes": settings.num_hashes,
            "num_bands": settings.num_bands,
            "shingle_size": settings.shingle_size,
            "tokenizer": text,
        }

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether it is text."""
        return is_text(data_type) or bool(pa.types.is_string_view(data_type))

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Make a signature of each text and write them."""
        settings = Settings.of(parameters.values)
        write_signatures(_signed(rows, settings), settings, folder)
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
        """Put the signatures of all together."""
        settings = segments[0].settings if segments else Settings()
        others = [each.settings for each in segments if each.settings != settings]
        if others:
            raise InvalidInputError(
                "segments whose signatures are made in different ways cannot be merged; build the "
                "index again",
                expected=str(settings),
                found=str(others[0]),
            )
        old = (_moved(each.parts(), move) for each, move in zip(segments, moves, strict=True))
        parts = chain(*old, _signed(rows, settings))
        write_signatures(parts, settings, folder)
        return settings.render()


def _signed(rows: IndexedRows, settings: Settings) -> Iterator[Signed]:
    signer = Signer(settings)
    for texts, numbers in rows.parts:
        signatures, places = signer.sign(texts)
        yield signatures, numbers[places]


def _moved(parts: Iterable[Signed], move: Move) -> Iterator[Signed]:
    for signatures, numbers in parts:
        moved = move(numbers)
        kept = moved != NO_ADDRESS
        yield signatures[kept], moved[kept]

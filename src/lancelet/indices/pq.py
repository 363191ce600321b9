"""Trained PQ codebooks, stored between the steps of a distributed build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import pyarrow as pa

from lancelet.file import LanceFileReader, LanceFileWriter

_BITS = 8


class PqModel:
    """Trained PQ codebooks of the sub-vectors.

    Attributes:
        num_subvectors: The number of sub-vectors of a vector.
        codebook: The codewords of all sub-vectors, in order, as fixed-size lists with the vector
            dimension.
        num_bits: The number of bits of a PQ code.
    """

    def __init__(
        self, num_subvectors: int, codebook: pa.FixedSizeListArray, *, num_bits: int = _BITS
    ) -> None:
        """Create a model from a codebook."""
        self.num_subvectors = num_subvectors
        self.codebook = codebook
        self.num_bits = num_bits

    @property
    def dimension(self) -> int:
        """Number of elements of a vector."""
        return int(self.codebook.type.list_size)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write the codebook to a Lance file."""
        metadata = {"num_subvectors": str(self.num_subvectors), "num_bits": str(self.num_bits)}
        schema = pa.schema([pa.field("codebook", self.codebook.type)], metadata=metadata)
        with LanceFileWriter(uri, schema, storage_options=storage_options) as writer:
            writer.write_batch(pa.table([self.codebook], names=["codebook"]))

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Load a model written by `save`."""
        reader = LanceFileReader(uri, storage_options=storage_options)
        metadata = reader.metadata().schema.metadata
        codebook = reader.read_all().to_table().column("codebook").combine_chunks()
        bits = int(metadata.get(b"num_bits", str(_BITS).encode()))
        return cls(int(metadata[b"num_subvectors"]), codebook, num_bits=bits)

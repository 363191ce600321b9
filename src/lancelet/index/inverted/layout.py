"""Files and metadata keys of an INVERTED segment.

    metadata.lance         partition numbers and tokenizer options
    part_0_docs.lance      _rowid, _num_tokens            row = document
                           _doc_index_0, ...              list indices of the document
    part_0_tokens.lance    _token, _token_id              or an FST, as in the reference
    part_0_invert.lance    _posting, _length, ...         row = token

The codecs are determined by the file metadata, not by the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

METADATA: Final = "metadata.lance"
DELETED_FRAGMENTS: Final = "deleted_fragments"
PARTITIONS: Final = "partitions"
PARAMS: Final = "params"
TOKEN_SET: Final = "token_set_format"  # noqa: S105 - a name in metadata
TOTAL_TOKENS: Final = "total_tokens"
_VARINT_TAIL: Final = "varint_delta_v1"
_SHARED_STREAM: Final = {
    "positions_layout": "shared_stream_v2",
    "positions_codec": "packed_delta_v1",
}

_DOCS: Final = (
    pa.field("_rowid", pa.uint64(), nullable=False),
    pa.field("_num_tokens", pa.uint32(), nullable=False),
)
TOKENS_SCHEMA: Final = pa.schema(
    [
        pa.field("_token", pa.string(), nullable=False),
        pa.field("_token_id", pa.uint32(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Codec:
    """Encoding of posting lists."""

    version: int = 2
    block_docs: int = 128

    def __post_init__(self) -> None:
        """Raise for versions and block sizes that cannot be written."""
        if self.version not in (1, 2, 3):
            raise InvalidInputError(
                f"unsupported FTS format version {self.version}, expected 1, 2 or 3"
            )
        if self.block_docs == 256 and self.version != 3:
            raise InvalidInputError(
                f"FTS format_version={self.version} is incompatible with block_size=256; use "
                "format_version=3"
            )

    @property
    def is_varint(self) -> bool:
        """Whether the tails of posting lists are varints."""
        return self.version > 1

    @staticmethod
    def from_metadata(metadata: Mapping[str, str]) -> Codec:
        """Return the codec recorded in the metadata of a file."""
        block_docs = int(metadata.get("posting_block_size", "128"))
        is_varint = metadata.get("posting_tail_codec") == _VARINT_TAIL
        if block_docs not in (128, 256):
            raise InvalidInputError("posting_block_size must be 128 or 256", found=block_docs)
        return Codec(3 if block_docs == 256 else 2 if is_varint else 1, block_docs)

    def as_metadata(self, *, with_position: bool) -> dict[str, str]:
        """Return the file metadata that records the codec."""
        metadata = {
            "format_version": str(self.version),
            "posting_block_size": str(self.block_docs),
        }
        if self.is_varint:
            metadata["posting_tail_codec"] = _VARINT_TAIL
        if with_position and self.is_varint:
            metadata |= _SHARED_STREAM
        return metadata


FST_SCHEMA: Final = pa.schema(
    [
        pa.field("_token_fst_bytes", pa.large_binary(), nullable=False),
        pa.field("_token_next_id", pa.uint32(), nullable=False),
        pa.field("_token_total_length", pa.uint64(), nullable=False),
    ]
)


def element_index_name(depth: int) -> str:
    """Return the name of the column with the list index at a nesting depth."""
    return f"_doc_index_{depth}"


def docs_schema(depth: int) -> pa.Schema:
    """Return the schema of documents that are elements of `depth` nested lists."""
    element_indices = [
        pa.field(element_index_name(each), pa.uint32(), nullable=False) for each in range(depth)
    ]
    return pa.schema([*_DOCS, *element_indices])


def file_name(partition: int, content: str) -> str:
    """Return the name of a partition file.

    >>> file_name(0, "docs")
    'part_0_docs.lance'
    """
    return f"part_{partition}_{content}.lance"

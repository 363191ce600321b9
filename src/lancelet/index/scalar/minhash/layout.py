"""The two files of a MINHASHLSH: signatures by document, and documents by the keys of their bands.

    signatures.lance    _rowid     4 0 9          document 0 is row 4
                        signature  [..] [..] [..]
    bands.lance         band_key   17 17 23 ..    in order, pages of 4096
                        doc_id     0  2  1  ..

A buffer of the second file has the last key of each page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.sorted_runs import Part, sorted_parts
from lancelet.index.scalar.minhash.settings import Settings
from lancelet.index.scalar.minhash.signatures import UInt16s, band_keys
from lancelet.rowids.address import UInt64s

Signed: TypeAlias = tuple[UInt16s, UInt64s]
"""Signatures, and the number of the row of each."""

SIGNATURES: Final = "signatures.lance"
BANDS: Final = "bands.lance"
ROW: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
"""The name of the column of rows from version 1 on."""
SIGNATURE: Final = "signature"
BAND_KEY: Final = "band_key"
DOC: Final = "doc_id"
PAGE_ROWS: Final = 4096
PAGE_ROWS_NAME: Final = "minhash_lsh_page_rows"
PAGE_TABLE: Final = "minhash_lsh_page_table_buffer"
_DETAILS: Final = "minhash_lsh_details"
_VERSION: Final = "minhash_lsh_index_version"
_NUM_DOCS: Final = "minhash_lsh_num_docs"
_PLAIN: Final = {"lance-encoding:compression": "none"}


def write_signatures(parts: Iterable[Signed], settings: Settings, folder: SegmentFolder) -> None:
    """Write both files."""
    signature_type = pa.list_(pa.field("item", pa.uint16()), settings.num_hashes)
    zipped = {"lance-encoding:structural-encoding": "fullzip", **_PLAIN}
    schema = pa.schema(
        [
            pa.field(ROW, pa.uint64(), nullable=False),
            pa.field(SIGNATURE, signature_type, nullable=False, metadata=zipped),
        ]
    )
    shared = {_DETAILS: settings.render().hex(), _VERSION: "0"}
    num_docs = 0

    def keyed() -> Iterator[Part]:
        nonlocal num_docs
        for signatures, numbers in parts:
            values = pa.array(np.ascontiguousarray(signatures).reshape(-1), pa.uint16())
            column = pa.FixedSizeListArray.from_arrays(values, type=signature_type)
            file.write(pa.Table.from_arrays([pa.array(numbers), column], schema=schema))
            keys = band_keys(signatures, settings.num_bands)
            docs = np.arange(num_docs, num_docs + len(numbers), dtype=np.uint64)
            num_docs += len(numbers)
            yield pa.array(keys.reshape(-1)), np.repeat(docs, settings.num_bands)

    band_schema = pa.schema(
        [
            pa.field(BAND_KEY, pa.uint64(), nullable=False, metadata=_PLAIN),
            pa.field(DOC, pa.uint32(), nullable=False, metadata=_PLAIN),
        ]
    )
    # Signatures are written as they pass on their way to be sorted by their bands.
    with folder.create(SIGNATURES, schema) as file, folder.create(BANDS, band_schema) as bands:
        pages = _PageTable()
        for keys, docs in sorted_parts(keyed(), pa.uint64()):
            columns = [keys, pa.array(docs.astype(np.uint32))]
            bands.write(pa.Table.from_arrays(columns, schema=band_schema))
            pages.add(keys.to_numpy())
        own = {
            PAGE_ROWS_NAME: str(PAGE_ROWS),
            PAGE_TABLE: str(bands.add_global_buffer(pages.render())),
            _NUM_DOCS: str(num_docs),
        }
        for name, value in (shared | own).items():
            bands.add_schema_metadata(name, value)
        for name, value in shared.items():
            file.add_schema_metadata(name, value)


class _PageTable:
    """The last key of each page, picked from keys as they pass."""

    def __init__(self) -> None:
        self._lasts: list[UInt64s] = []
        self._num_keys = 0
        self._last = np.empty(0, np.uint64)

    def add(self, keys: UInt64s) -> None:
        first = PAGE_ROWS - 1 - self._num_keys % PAGE_ROWS
        self._lasts.append(keys[first::PAGE_ROWS])
        self._num_keys += len(keys)
        self._last = keys[-1:]

    def render(self) -> bytes:
        unfinished = [self._last] if self._num_keys % PAGE_ROWS else []
        return np.concatenate([np.empty(0, np.uint64), *self._lasts, *unfinished]).tobytes()

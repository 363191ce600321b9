"""Near-duplicate search: finds texts that share a band with a query, and their distances.

    query      bands 17 40        17: documents 0, 2      40: document 2
    compared   signatures 0, 2    7 and 120 of 128 values are equal
    result     rows 4 and 9       distances 0.945, 0.0625

A MINHASHLSH index has two files, signatures by document and documents by band key:

    signatures.lance    _rowid     4 0 9          document 0 is row 4
                        signature  [..] [..] [..]
    bands.lance         band_key   17 17 23 ..    sorted, pages of 4096
                        doc_id     0  2  1  ..

A global buffer of the second file contains the last key of each page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError
from lancelet.format.wire import parse_number
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.sorted_runs import Part, sorted_parts
from lancelet.index.query import ScalarQuery
from lancelet.index.scalar.minhash.signatures import Settings, UInt16s, band_keys, distances
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s

_PART_DOCS: Final = 4096
_DOCS_ESTIMATED: Final = 2
"""Estimated number of documents that share a band with a query."""

Signatures: TypeAlias = tuple[UInt16s, UInt64s]
"""Signatures and their row numbers."""

SIGNATURES: Final = "signatures.lance"
BANDS: Final = "bands.lance"
ROW: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
"""Row column since version 1."""
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


class MinHashSegment:
    """An open segment of a MINHASHLSH index. Only the page table is held in memory."""

    def __init__(self, folder: SegmentFolder, settings: Settings) -> None:
        """Read the page table. Pages and signatures are read on demand."""
        self.settings = settings
        self._path = folder.path
        self._signatures = folder.open(SIGNATURES)
        self._bands = folder.open(BANDS)
        names = self._signatures.schema.names
        self._row_name = ROW_ADDRESS if ROW_ADDRESS in names else ROW
        metadata = self._bands.metadata
        table = np.frombuffer(self._bands.global_buffer(metadata.get(PAGE_TABLE, "")), np.uint8)
        self._page_rows = parse_number(metadata.get(PAGE_ROWS_NAME)) or 0
        pages = -(-self._bands.num_rows // max(self._page_rows, 1))
        if not self._page_rows or table.nbytes != 8 * pages:
            raise CorruptDataError(
                "the page table of a MINHASHLSH index does not match its bands",
                path=folder.path,
                page_rows=self._page_rows,
                table_bytes=table.nbytes,
                bands=self._bands.num_rows,
            )
        self._last_keys = table.view("<u8").astype(np.uint64)
        self._cache = folder.cache_scope

    @property
    def num_docs(self) -> int:
        """Number of signatures."""
        return self._signatures.num_rows

    def near(self, signature: UInt16s | None) -> tuple[UInt64s, npt.NDArray[np.float32]]:
        """Return the rows that share a band with a signature, and their distances.

        Returns no rows if `signature` is None.
        """
        if signature is None:
            return np.empty(0, np.uint64), np.empty(0, np.float32)
        docs = self._find_docs(np.unique(band_keys(signature[None, :], self.settings.num_bands)))
        if not len(docs):
            return np.empty(0, np.uint64), np.empty(0, np.float32)
        if docs[-1] >= self.num_docs:
            raise CorruptDataError(
                "a band of a MINHASHLSH index refers to an unknown document",
                path=self._path,
                document=int(docs[-1]),
                documents=self.num_docs,
            )
        numbers, signatures = self._read(RowIndices(docs))
        return numbers, distances(signatures, signature)

    def estimate_reads(self, signature: UInt16s | None) -> IoCounts:
        """Estimate the reads of a search: missing pages and a few signatures."""
        if signature is None or not self.num_docs:
            return IoCounts()
        keys = np.unique(band_keys(signature[None, :], self.settings.num_bands))
        pages = np.unique(self._last_keys.searchsorted(keys, "left"))
        missing = [each for each in pages.tolist() if each not in self._cache]
        rows = [self._rows_of(page) for page in missing if page < len(self._last_keys)]
        total = self._bands.estimate_reads([BAND_KEY, DOC], *rows) if rows else IoCounts()
        docs = np.linspace(0, self.num_docs - 1, min(self.num_docs, _DOCS_ESTIMATED)).astype(
            np.int64
        )
        return total + self._signatures.estimate_reads(
            [self._row_name, SIGNATURE], RowIndices(np.unique(docs))
        )

    def parts(self) -> Iterator[Signatures]:
        """Yield all signatures with their row numbers."""
        for start in range(0, self.num_docs, _PART_DOCS):
            stop = min(start + _PART_DOCS, self.num_docs)
            numbers, signatures = self._read(RowRange(start, stop))
            yield signatures, numbers

    def estimate(self, query: ScalarQuery) -> None:
        """Return None; filters are not supported."""

    def search(self, query: ScalarQuery) -> Any:
        """Raise; filters are not supported."""
        raise AssertionError("supported queries have an estimate", query)

    def nulls(self) -> None:
        """Return None; texts without tokens are not recorded either."""

    def statistics(self) -> dict[str, Any]:
        """Return the number of signatures and the settings."""
        return {
            "num_docs": self.num_docs,
            "num_pages": len(self._last_keys),
            "num_hashes": self.settings.num_hashes,
            "num_bands": self.settings.num_bands,
            "shingle_size": self.settings.shingle_size,
            "signature_version": 0,
        }

    def _find_docs(self, keys: UInt64s) -> Int64s:
        """Return the distinct documents with any of the keys, in ascending order."""
        parts: list[Int64s] = [np.empty(0, np.int64)]
        for key in keys:
            page = int(self._last_keys.searchsorted(key, "left"))
            while page < len(self._last_keys):
                page_keys, docs = self._page(page)
                start, stop = (
                    page_keys.searchsorted(key, "left"),
                    page_keys.searchsorted(key, "right"),
                )
                parts.append(docs[start:stop])
                if stop < len(page_keys):
                    break
                page += 1
        return np.unique(np.concatenate(parts))

    def _page(self, page: int) -> tuple[UInt64s, Int64s]:
        return self._cache.get_or_make(page, lambda: self._read_page(page))

    def _rows_of(self, page: int) -> RowRange:
        start = page * self._page_rows
        return RowRange(start, min(start + self._page_rows, self._bands.num_rows))

    def _read_page(self, page: int) -> tuple[UInt64s, Int64s]:
        keys, docs = self._bands.read([BAND_KEY, DOC], self._rows_of(page))
        return keys.to_numpy(), docs.to_numpy().astype(np.int64)

    def _read(self, rows: RowRange | RowIndices) -> tuple[UInt64s, UInt16s]:
        numbers, column = self._signatures.read([self._row_name, SIGNATURE], rows)
        if column.type.list_size != self.settings.num_hashes or column.null_count:
            raise CorruptDataError(
                "the signature size of a MINHASHLSH index differs from its details",
                path=self._path,
                expected=self.settings.num_hashes,
                found=str(column.type),
            )
        signatures = column.flatten().to_numpy().reshape(-1, self.settings.num_hashes)
        return numbers.to_numpy(), signatures


def write_signatures(
    parts: Iterable[Signatures], settings: Settings, folder: SegmentFolder
) -> None:
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

    def band_entries() -> Iterator[Part]:
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
    # Signatures are written while their band keys are passed to the sort.
    with folder.create(SIGNATURES, schema) as file, folder.create(BANDS, band_schema) as bands:
        pages = _PageTable()
        for keys, docs in sorted_parts(band_entries(), pa.uint64()):
            columns = [keys, pa.array(docs.astype(np.uint32))]
            bands.write(pa.Table.from_arrays(columns, schema=band_schema))
            pages.add(keys.to_numpy())
        band_metadata = {
            PAGE_ROWS_NAME: str(PAGE_ROWS),
            PAGE_TABLE: str(bands.add_global_buffer(pages.render())),
            _NUM_DOCS: str(num_docs),
        }
        for name, value in (shared | band_metadata).items():
            bands.add_schema_metadata(name, value)
        for name, value in shared.items():
            file.add_schema_metadata(name, value)


class _PageTable:
    """Collects the last key of each page while keys are written."""

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

"""Searching signatures: texts that share a band with a wanted one, and how far they are from it.

wanted     bands 17 40        17: documents 0, 2      40: document 2
compared   signatures 0, 2    7 and 120 of 128 numbers are the same
found      rows 4 and 9       distances 0.945, 0.0625

The two files of a MINHASHLSH: signatures by document, and documents by the keys of their bands.

    signatures.lance    _rowid     4 0 9          document 0 is row 4
                        signature  [..] [..] [..]
    bands.lance         band_key   17 17 23 ..    in order, pages of 4096
                        doc_id     0  2  1  ..

A buffer of the second file has the last key of each page.
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
_DOCS_GUESSED: Final = 2
"""How many documents are taken to share a band with a text."""

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


class MinHashSegment:
    """An open MINHASHLSH; what is in memory is the last key of each page of bands."""

    def __init__(self, folder: SegmentFolder, settings: Settings) -> None:
        """Read the page table; pages and signatures are read when they are asked for."""
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
                "the page table of a MINHASHLSH does not fit its bands",
                path=folder.path,
                page_rows=self._page_rows,
                table_bytes=table.nbytes,
                bands=self._bands.num_rows,
            )
        self._last_keys = table.view("<u8").astype(np.uint64)
        self._kept = folder.kept

    @property
    def num_docs(self) -> int:
        """How many texts have a signature."""
        return self._signatures.num_rows

    def near(self, wanted: UInt16s | None) -> tuple[UInt64s, npt.NDArray[np.float32]]:
        """Return the rows whose signatures share a band with another, and their distances.

        Without a signature there are none.
        """
        if wanted is None:
            return np.empty(0, np.uint64), np.empty(0, np.float32)
        docs = self._sharing(np.unique(band_keys(wanted[None, :], self.settings.num_bands)))
        if not len(docs):
            return np.empty(0, np.uint64), np.empty(0, np.float32)
        if docs[-1] >= self.num_docs:
            raise CorruptDataError(
                "a band of a MINHASHLSH is of a document that is not there",
                path=self._path,
                document=int(docs[-1]),
                documents=self.num_docs,
            )
        numbers, signatures = self._read(RowIndices(docs))
        return numbers, distances(signatures, wanted)

    def estimate_reads(self, wanted: UInt16s | None) -> IoCounts:
        """Return about what a search will read: pages that are missing, and a few signatures."""
        if wanted is None or not self.num_docs:
            return IoCounts()
        keys = np.unique(band_keys(wanted[None, :], self.settings.num_bands))
        pages = np.unique(self._last_keys.searchsorted(keys, "left"))
        missing = [each for each in pages.tolist() if each not in self._kept]
        rows = [self._rows_of(page) for page in missing if page < len(self._last_keys)]
        found = self._bands.estimate_reads([BAND_KEY, DOC], *rows) if rows else IoCounts()
        docs = np.linspace(0, self.num_docs - 1, min(self.num_docs, _DOCS_GUESSED)).astype(np.int64)
        return found + self._signatures.estimate_reads(
            [self._row_name, SIGNATURE], RowIndices(np.unique(docs))
        )

    def parts(self) -> Iterator[Signed]:
        """Yield all signatures with the numbers of their rows."""
        for start in range(0, self.num_docs, _PART_DOCS):
            stop = min(start + _PART_DOCS, self.num_docs)
            numbers, signatures = self._read(RowRange(start, stop))
            yield signatures, numbers

    def estimate(self, query: ScalarQuery) -> None:
        """Return None: no filter can be answered."""

    def search(self, query: ScalarQuery) -> Any:
        """Refuse: no filter can be answered."""
        raise AssertionError("only what has an estimate is searched", query)

    def nulls(self) -> None:
        """Return None: texts without words have no signature either."""

    def statistics(self) -> dict[str, Any]:
        """Return how many signatures there are, and how they are made."""
        return {
            "num_docs": self.num_docs,
            "num_pages": len(self._last_keys),
            "num_hashes": self.settings.num_hashes,
            "num_bands": self.settings.num_bands,
            "shingle_size": self.settings.shingle_size,
            "signature_version": 0,
        }

    def _sharing(self, keys: UInt64s) -> Int64s:
        """Return the documents that have any of some keys, ascending, each once."""
        found: list[Int64s] = [np.empty(0, np.int64)]
        for key in keys:
            page = int(self._last_keys.searchsorted(key, "left"))
            while page < len(self._last_keys):
                own, docs = self._page(page)
                start, stop = own.searchsorted(key, "left"), own.searchsorted(key, "right")
                found.append(docs[start:stop])
                if stop < len(own):
                    break
                page += 1
        return np.unique(np.concatenate(found))

    def _page(self, page: int) -> tuple[UInt64s, Int64s]:
        return self._kept.get_or_make(page, lambda: self._read_page(page))

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
                "the signatures of a MINHASHLSH do not have the numbers of its details",
                path=self._path,
                expected=self.settings.num_hashes,
                found=str(column.type),
            )
        signatures = column.flatten().to_numpy().reshape(-1, self.settings.num_hashes)
        return numbers.to_numpy(), signatures


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

"""The layout of the first releases: an IVF_PQ in one file, which is no data file.

    codes of partition 0, row by row | ids of its rows | codes of partition 1 | ...
    message     u32 length, then the metric, the centroids, the codebook, where partitions begin
    16 bytes    u64 where the message is, u16 0, u16 1, "LANC"

Writers of today still make it where they are asked for the version `LEGACY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lancelet.buffers import Bytes, Ranges
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.index_metadata import IndexFile
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.tensor import parse_tensor, render_tensor
from lancelet.index.vector import layout
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Matrix, Quantizer
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.io.metered import IoCounts
from lancelet.io.store import ObjectReader
from lancelet.kernels import Metric
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

NAME: Final = "IVF_PQ"
_FOOTER: Final = np.dtype([("message", "<u8"), ("major", "<u2"), ("minor", "<u2"), ("magic", "S4")])
_MAGIC: Final = b"LANC"
_VERSION: Final = (0, 1)
_ID_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_WORD_BITS: Final = (4, 8)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the file says of the index that it is of."""

    name: str
    columns: tuple[str, ...]
    dataset_version: int


class OneFile:
    """An open file of this layout: models in memory, partitions read as they are asked for."""

    graphs = None
    left_out = None
    version_name = "Legacy"

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the message at the end of the file."""
        self.name = NAME
        self._path = f"{folder.path}/{layout.INDEX_FILE}"
        self._reader = folder.store.open_reader(self._path)
        message, end = _read_message(self._reader, self._path)
        self.origin = Origin(message.name, tuple(message.columns), message.dataset_version)
        ivf, pq = _stages_of(message.vector_index, self._path)
        metric = Metric(message.vector_index.metric_type)
        codes = _quantizer_of(pq, metric, self._path)
        self.quantizer: Quantizer = codes
        self.notes = _notes_of(codes)
        self._width = codes.width
        dimension = int(pq.dimension)
        centroids = _centroids_of(ivf, dimension, self._path)
        self.model = IvfModel(metric, centroids, ivf.loss if ivf.HasField("loss") else None)
        self.lengths = np.array(ivf.lengths, np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self._row_bytes = codes.width + _ID_BYTES
        offsets = np.array(ivf.offsets, np.uint64)
        room = np.uint64(end) - np.minimum(offsets, np.uint64(end))
        if not len(offsets) == len(self.lengths) == len(centroids) or bool(
            (self.lengths > (room // np.uint64(self._row_bytes)).astype(np.int64)).any()
        ):
            raise CorruptDataError(
                "the partitions of an index reach beyond its file",
                path=self._path,
                partitions=len(self.lengths),
                centroids=len(centroids),
                file_bytes=self._reader.size,
            )
        self._offsets = offsets.astype(np.int64)

    def read(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the numbers of the rows of a partition, and their codes row by row."""
        rows, width = int(self.lengths[number]), self._width
        whole = self._range(number)
        stored = self._reader.read_ranges(Ranges.of(whole)).slice_bytes(0)
        numbers = np.frombuffer(stored[rows * width :].tobytes(), "<u8")
        return numbers.astype(np.uint64), {"code": stored[: rows * width].reshape(rows, width)}

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Return about what reading partitions asks of storage."""
        return IoCounts(len(numbers), sum(self._range(number)[1] for number in numbers))

    def _range(self, number: int) -> tuple[int, int]:
        return int(self._offsets[number]), int(self.lengths[number]) * self._row_bytes


def is_one_file(folder: SegmentFolder) -> bool:
    """Return whether a segment has a file of this layout, which the end of the file tells."""
    reader = folder.store.open_reader(f"{folder.path}/{layout.INDEX_FILE}")
    try:
        return _footer_of(reader.read_tail(_FOOTER.itemsize)) is not None
    finally:
        reader.close()


def write_one_file(
    folder: SegmentFolder,
    model: IvfModel,
    quantizer: Quantizer,
    parts: Iterable[tuple[UInt64s, Codes]],
    origin: Origin,
) -> None:
    """Write a segment of partitions, each with the numbers of its rows and their codes."""
    if not isinstance(quantizer, ProductCodes):
        raise UnsupportedError("only codes of PQ can be kept in one file", known=[NAME])
    offsets: list[int] = []
    lengths: list[int] = []
    path = f"{folder.path}/{layout.INDEX_FILE}"
    with folder.store.open_writer(path) as file:
        for numbers, codes in parts:
            offsets.append(file.position)
            lengths.append(len(numbers))
            file.write(np.ascontiguousarray(codes["code"]).reshape(-1).view(np.uint8))
            file.write(np.ascontiguousarray(numbers, "<u8").view(np.uint8))
        message = render_message(_message_of(model, quantizer, offsets, lengths, origin))
        footer = np.array([(file.position, *_VERSION, _MAGIC)], _FOOTER)
        file.write(len(message).to_bytes(_LENGTH_BYTES, "little"), message, footer.tobytes())
        size = file.close()
    folder.written.append(IndexFile(layout.INDEX_FILE, size))


def _message_of(
    model: IvfModel,
    quantizer: ProductCodes,
    offsets: Sequence[int],
    lengths: Sequence[int],
    origin: Origin,
) -> index_pb.Index:
    pieces, words, size = quantizer.codebook.shape
    found = index_pb.Index(
        name=origin.name,
        columns=list(origin.columns),
        dataset_version=origin.dataset_version,
        index_type="VECTOR",
        vector_index=index_pb.VectorIndex(
            spec_version=1,
            dimension=pieces * size,
            metric_type=index_pb.VectorMetricType.Name(int(model.metric)),
        ),
    )
    vectors = found.vector_index
    ivf = vectors.stages.add().ivf
    ivf.offsets.extend(offsets)
    ivf.lengths.extend(lengths)
    ivf.centroids_tensor.CopyFrom(render_tensor(model.centroids))
    if model.loss is not None:
        ivf.loss = model.loss
    pq = vectors.stages.add().pq
    pq.num_bits, pq.num_sub_vectors, pq.dimension = quantizer.bits, pieces, pieces * size
    book = quantizer.codebook.reshape(words, pieces * size)
    pq.codebook_tensor.CopyFrom(render_tensor(book))
    return found


def _footer_of(tail: Bytes) -> tuple[int, Bytes] | None:
    """Return where the message is, or None if the file is of another kind."""
    if len(tail) < _FOOTER.itemsize:
        return None
    (footer,) = np.frombuffer(tail[-_FOOTER.itemsize :].tobytes(), _FOOTER)
    if footer["magic"] != _MAGIC or (int(footer["major"]), int(footer["minor"])) != _VERSION:
        return None
    return int(footer["message"]), tail


def _read_message(reader: ObjectReader, path: str) -> tuple[index_pb.Index, int]:
    """Return the message at the end of a file, and where it begins."""
    found = _footer_of(reader.read_tail(_FOOTER.itemsize))
    if found is None:
        raise UnsupportedError(
            "a vector index is in no layout that is known; drop it and build it again",
            path=path,
        )
    position, size = found[0], reader.size
    room = size - _FOOTER.itemsize - _LENGTH_BYTES - position
    if room < 0:
        raise CorruptDataError("the message of an index is out of range of its file", path=path)
    stored = reader.read_ranges(Ranges.of((position, room + _LENGTH_BYTES))).slice_bytes(0)
    length = int.from_bytes(stored[:_LENGTH_BYTES].tobytes(), "little")
    if length > room:
        raise CorruptDataError(
            "the message of an index reaches beyond its file",
            path=path,
            message_bytes=length,
            room=room,
        )
    whole = stored[_LENGTH_BYTES : _LENGTH_BYTES + length].tobytes()
    return parse_message(index_pb.Index, whole), position


def _stages_of(index: index_pb.VectorIndex, path: str) -> tuple[index_pb.IVF, index_pb.PQ]:
    names = [stage.WhichOneof("stage") for stage in index.stages]
    if names != ["ivf", "pq"]:
        raise UnsupportedError(
            "a vector index in one file is read if it is an IVF_PQ; build it again",
            path=path,
            found=[str(name) for name in names][:8],
        )
    return index.stages[0].ivf, index.stages[1].pq


def _quantizer_of(pq: index_pb.PQ, metric: Metric, path: str) -> ProductCodes:
    if pq.HasField("codebook_tensor"):
        book: Matrix = parse_tensor(pq.codebook_tensor)
    else:
        book = np.array(pq.codebook, np.float32)
    bits, pieces, dimension = int(pq.num_bits), int(pq.num_sub_vectors), int(pq.dimension)
    is_sound = bits in _WORD_BITS and pieces > 0 and dimension > 0 and not dimension % pieces
    if not is_sound or book.size != dimension << bits or bits * pieces % 8:
        raise CorruptDataError(
            "a codebook does not fit its codes",
            path=path,
            bits=bits,
            pieces=pieces,
            dimension=dimension,
            values=book.size,
        )
    shaped = book.reshape(pieces, 1 << bits, dimension // pieces)
    return ProductCodes(metric, shaped, bits, transposed=False)


def _notes_of(codes: ProductCodes) -> Mapping[str, Any]:
    """Return what there is to say of codes, by pylance's names."""
    pieces, _, size = codes.codebook.shape
    return {"nbits": codes.bits, "num_sub_vectors": pieces, "dimension": pieces * size}


def _centroids_of(ivf: index_pb.IVF, dimension: int, path: str) -> Matrix:
    if ivf.HasField("centroids_tensor"):
        found: Matrix = parse_tensor(ivf.centroids_tensor)
    else:
        found = np.array(ivf.centroids, np.float32)
    if found.size != len(ivf.lengths) * dimension:
        raise CorruptDataError(
            "the centroids of an index do not have the dimension of its codebook",
            path=path,
            partitions=len(ivf.lengths),
            dimension=dimension,
            values=found.size,
        )
    return found.reshape(-1, dimension)

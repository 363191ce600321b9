"""What a vector index is asked for, and the models that are found for it.

    rows 100000, target 8192       12 partitions, centroids from 256 rows of the sample for each
    codebook of 16 x 256 words     from 256 residuals for each word

Samples are taken in one pass over the rows, so as much memory is needed as they have, and no more.
A request may bring centroids and a codebook of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.index.base import IndexedRows, Parameters, Progress, silent
from lancelet.index.vector.details import CANDIDATES, CONNECTIONS, LEVELS, IvfDetails
from lancelet.index.vector.graph import GraphSettings
from lancelet.index.vector.layout import METRIC_NAMES
from lancelet.index.vector.model import ROWS_PER_CENTROID, IvfModel, KnownPartitions
from lancelet.index.vector.one_file import Origin
from lancelet.index.vector.quantizers.base import Matrix, Quantizer, residuals, work_type
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.quantizers.registry import GRAPH, check_metric, quantizer_name
from lancelet.index.vector.quantizers.rotation import FastRotation
from lancelet.index.vector.quantizers.rq import BITS_MAX, DEFAULT_BITS, RotatedCodes
from lancelet.index.vector.quantizers.sq import ScalarCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.vectors import matrix_of, vector_type_of
from lancelet.kernels import Metric
from lancelet.values import dataclass

PARTITIONS_MAX: Final = 4096
_TARGETS: Final = {"IVF_FLAT": 4096, "IVF_PQ": 8192, "IVF_SQ": 8192, "IVF_RQ": 4096}
_GRAPH_TARGET: Final = 1 << 20
_SEED: Final = 42


def default_target(name: str) -> int:
    """Return how many rows a partition of a kind should have.

    >>> default_target("IVF_PQ")
    8192
    """
    return _TARGETS.get(name, _GRAPH_TARGET)


@dataclass(frozen=True, slots=True, eq=False)
class IvfRequest:
    """An index that is asked for; None lets the index choose.

    `models` are those that `train_models` returned before, so that several segments share them.
    With an `origin` the segment is one file, which says of what index it is. Rows are put into the
    `known` partitions, if they are given, and those that are not among them are left out.
    """

    name: str
    metric: Metric = Metric.L2
    partitions: int | None = None
    target_rows: int | None = None
    pieces: int | None = None
    bits: int | None = None
    rounds: int = 50
    sample_rate: int = ROWS_PER_CENTROID
    transposed: bool = True
    centroids: Matrix | None = None
    codebook: Matrix | None = None
    rotation_signs: npt.NDArray[np.uint8] | None = None
    models: tuple[IvfModel, Quantizer] | None = None
    m: int = CONNECTIONS
    ef_construction: int = CANDIDATES
    max_level: int = LEVELS
    seed: int = _SEED
    origin: Origin | None = None
    known: KnownPartitions | None = None
    progress: Progress = silent

    @staticmethod
    def of(parameters: Parameters) -> IvfRequest:
        """Return the request that parameters hold."""
        found = parameters.values["request"]
        if not isinstance(found, IvfRequest):
            raise InvalidInputError("a vector index is asked for by a request")
        return found

    @property
    def graph_settings(self) -> GraphSettings | None:
        """What graphs are built with, or None if the kind has none."""
        if not self.name.startswith(GRAPH):
            return None
        return GraphSettings(self.m, self.ef_construction, self.max_level)

    @property
    def target(self) -> int:
        """How many rows a partition should have."""
        return self.target_rows or default_target(self.name)

    def count_for(self, num_rows: int) -> int:
        """Return how many partitions there are for so many rows.

        A number that was asked for is taken, but for codebooks, which need rows in each.

        >>> IvfRequest("IVF_FLAT").count_for(20_000)
        4
        """
        if self.centroids is not None:
            return len(self.centroids)
        if self.partitions is not None and quantizer_name(self.name) != "PQ":
            return max(1, min(self.partitions, num_rows))
        wanted = self.partitions or min(max(num_rows // self.target, 1), PARTITIONS_MAX)
        return max(1, min(wanted, num_rows // self.sample_rate))

    def sample_size(self, num_rows: int) -> int:
        """Return how many of so many rows the models are found from, at most.

        >>> IvfRequest("IVF_PQ").sample_size(20_000), IvfRequest("IVF_FLAT").sample_size(20_000)
        (65536, 1024)
        """
        # Words of a book and bounds of bytes are found from rows as centroids are.
        is_learned = quantizer_name(self.name) in {"PQ", "SQ"}
        words = 1 << min(self.bits or 8, 8) if is_learned else 1
        return max(self.count_for(num_rows), words) * self.sample_rate

    @staticmethod
    def like(segment: IvfSegment) -> IvfRequest:
        """Return the request that a segment was made by, as far as it says."""
        details, own = segment.details, segment.quantizer.settings()
        asked = IvfRequest(
            segment.name,
            segment.model.metric,
            target_rows=details.target_rows or None,
            partitions=None if details.target_rows else segment.model.partitions,
            pieces=own.get("num_sub_vectors"),
            bits=own.get("num_bits"),
            transposed=not own.get("skip_transpose", False),
        )
        if segment.graphs is None:
            return asked
        built = segment.graphs.settings
        return replace(
            asked,
            m=built.m,
            ef_construction=built.ef_construction,
            max_level=built.max_level,
        )

    @staticmethod
    def with_details(details: IvfDetails) -> IvfRequest:
        """Return the request that an index without rows was made by."""
        if details.name is None:
            raise UnsupportedError(
                "a vector index does not say of what kind it is; drop it and build it again"
            )
        known = {"num_sub_vectors": "pieces", "num_bits": "bits"}
        known |= {key: key for key in ("m", "ef_construction", "max_level")}
        values: dict[str, Any] = {
            own: int(details.values[key]) for key, own in known.items() if details.values.get(key)
        }
        return IvfRequest(
            details.name,
            details.metric,
            partitions=details.partitions or None,
            target_rows=details.target_rows or None,
            transposed=details.hints.get("lance.skip_transpose") != "true",
            **values,
        )

    def untrained_details(self, data_type: pa.DataType) -> IvfDetails:
        """Return what the metadata say of an index that has no rows yet."""
        vector_type = self.comparable_type(data_type)
        pieces = self.pieces or default_pieces(vector_type.list_size)
        return self._details({"num_bits": self.bits or 8, "num_sub_vectors": pieces})

    def comparable_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type of the vectors of a column; raise unless the index can compare them."""
        check_metric(self.name, self.metric)
        found = vector_type_of(data_type)
        if found is None:
            raise InvalidInputError("the column does not hold vectors", found=str(data_type))
        if (found.value_type == pa.uint8()) != (self.metric is Metric.HAMMING):
            raise InvalidInputError(
                "vectors of bytes are compared by hamming, others are not",
                metric=METRIC_NAMES[self.metric],
                found=str(found.value_type),
            )
        return found

    def details(self, quantizer: Quantizer) -> IvfDetails:
        """Return what the metadata say of the index."""
        return self._details(quantizer.settings())

    def _details(self, settings: Mapping[str, Any]) -> IvfDetails:
        values = dict(settings)
        if self.graph_settings is not None:
            values |= {
                "m": self.m,
                "ef_construction": self.ef_construction,
                "max_level": self.max_level,
            }
        hints = {
            "lance.ivf.max_iters": str(self.rounds),
            "lance.ivf.sample_rate": str(self.sample_rate),
        }
        if quantizer_name(self.name) == "PQ":
            hints["lance.pq.max_iters"] = str(self.rounds)
            hints["lance.pq.sample_rate"] = str(self.sample_rate)
            hints["lance.skip_transpose"] = "false" if self.transposed else "true"
        target, partitions = self.target_rows or 0, self.partitions or 0
        return IvfDetails(self.name, self.metric, target, values, hints, partitions)


def train_models(rows: IndexedRows, request: IvfRequest) -> tuple[IvfModel, Quantizer]:
    """Find what a request does not bring, from a sample of rows."""
    if request.models is not None:
        return request.models
    vector_type = request.comparable_type(rows.data_type)
    dtype = np.dtype(vector_type.value_type.to_pandas_dtype())
    num_rows = rows.num_rows
    partitions = request.count_for(num_rows)
    sample = sample_rows(rows, request.metric, request.sample_size(num_rows), request.seed)
    if not len(sample):
        sample = np.zeros(
            (0, vector_type.list_size), dtype if dtype == np.uint8 else work_type(dtype)
        )
    request.progress("train_ivf", 0, 1)
    model = _model(sample, request, dtype, partitions)
    request.progress("train_ivf", 1, 1)
    return model, _quantizer(sample, model, request, dtype)


def sample_rows(rows: IndexedRows, metric: Metric, count: int, seed: int) -> Matrix:
    """Return about so many vectors, chosen by chance, or all if there are not more."""
    random = np.random.default_rng(seed)
    share = 1.0 if count >= rows.num_rows else count / rows.num_rows
    found: list[Matrix] = []
    for values, numbers in rows.parts:
        if share == 1:
            found.append(matrix_of(values, numbers, metric)[0])
            continue
        chosen = np.flatnonzero(random.random(len(values)) < share)
        found.append(matrix_of(values.take(chosen), numbers[chosen], metric)[0])
    if not found:
        return np.empty((0, 0))
    return np.concatenate(found)


def _model(sample: Matrix, request: IvfRequest, dtype: np.dtype[Any], partitions: int) -> IvfModel:
    if request.centroids is not None:
        if request.centroids.ndim != 2 or request.centroids.shape[1] != sample.shape[1]:
            raise InvalidInputError(
                "Ivf centroids must be vectors of the dimension of the column",
                found=list(request.centroids.shape),
                dimension=sample.shape[1],
            )
        return IvfModel(request.metric, request.centroids.astype(dtype))
    return IvfModel.train(
        _some(sample, partitions * request.sample_rate, request.seed),
        request.metric,
        dtype,
        partitions=partitions,
        seed=request.seed,
        rounds=request.rounds,
    )


def _quantizer(
    sample: Matrix, model: IvfModel, request: IvfRequest, dtype: np.dtype[Any]
) -> Quantizer:
    metric, dimension = request.metric, sample.shape[1]
    match quantizer_name(request.name):
        case "SQ":
            return ScalarCodes.train(sample, metric)
        case "RQ":
            return _rotated_codes(dimension, request)
        case "PQ":
            return _product_codes(sample, model, request, dtype)
        case _:
            return Flat(metric, dimension, dtype)


def _rotated_codes(dimension: int, request: IvfRequest) -> RotatedCodes:
    bits = request.bits or DEFAULT_BITS
    if dimension % 8 or bits > BITS_MAX:
        raise InvalidInputError(
            "vector dimension must be divisible by 8 for IVF_RQ, which keeps 1 to 9 bits",
            num_bits=bits,
            dimension=dimension,
        )
    signs = request.rotation_signs
    if signs is None:
        return RotatedCodes.train(
            dimension,
            request.metric,
            bits=bits,
            seed=request.seed,
            packed=request.transposed,
        )
    if len(signs) != 4 * (dimension // 8):
        raise InvalidInputError(
            "a rotation has not as many signs as it needs", found=len(signs), dimension=dimension
        )
    rotation = FastRotation(dimension, signs)
    return RotatedCodes(request.metric, dimension, bits, rotation, request.transposed)


def _product_codes(
    sample: Matrix, model: IvfModel, request: IvfRequest, dtype: np.dtype[Any]
) -> ProductCodes:
    dimension, bits = sample.shape[1], request.bits or 8
    pieces = request.pieces or default_pieces(dimension)
    if dimension % pieces:
        raise InvalidInputError(
            f"dimension ({dimension}) must be divisible by num_sub_vectors ({pieces})"
        )
    if bits not in {4, 8} or pieces * bits % 8:
        raise InvalidInputError(
            "codes have 8 bits, or 4 with an even number of sub-vectors",
            num_bits=bits,
            num_sub_vectors=pieces,
        )
    if request.codebook is not None:
        if request.codebook.size != dimension << bits:
            raise InvalidInputError(
                "a codebook does not have the number of values that its codewords need",
                found=request.codebook.size,
                expected=dimension << bits,
            )
        book = request.codebook.reshape(pieces, 1 << bits, dimension // pieces).astype(dtype)
        return ProductCodes(request.metric, book, bits, request.transposed)
    sample = _some(sample, request.sample_rate << bits, request.seed)
    rest = residuals(sample, model.assign(sample), model.centroids, request.metric)
    return ProductCodes.train(
        rest,
        request.metric,
        dtype,
        pieces=pieces,
        bits=bits,
        seed=request.seed,
        rounds=request.rounds,
        transposed=request.transposed,
        progress=lambda done: request.progress("train_quantizer", done, pieces),
    )


def _some(sample: Matrix, most: int, seed: int) -> Matrix:
    """Return so many rows of a sample at most, chosen by chance."""
    if len(sample) <= most:
        return sample
    chosen = np.random.default_rng(seed).choice(len(sample), most, replace=False)
    return sample[np.sort(chosen)]


def default_pieces(dimension: int) -> int:
    """Return into how many pieces a vector is cut: of 16 elements each, else 8, else one.

    >>> default_pieces(128), default_pieces(24), default_pieces(7)
    (8, 3, 1)
    """
    for size in (16, 8):
        if dimension % size == 0:
            return dimension // size
    return math.gcd(dimension, 1)

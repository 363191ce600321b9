"""Build parameters of vector indices, and training of IVF models and quantizers.

    rows 100000, target 8192       12 partitions, trained on 256 sampled rows per centroid
    codebook of 16 x 256 words     trained on 256 sampled residuals per codeword

Samples are taken in one pass over the rows, so memory is proportional to the sample. Centroids and
codebooks may also be provided.
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
from lancelet.index.kernels import Metric
from lancelet.index.vector.details import CANDIDATES, CONNECTIONS, LEVELS, IvfDetails
from lancelet.index.vector.graph import GraphSettings
from lancelet.index.vector.layout import METRIC_NAMES
from lancelet.index.vector.legacy_file import Origin
from lancelet.index.vector.model import ROWS_PER_CENTROID, AssignedPartitions, IvfModel
from lancelet.index.vector.quantizers.base import Matrix, Quantizer, residuals, work_type
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.quantizers.registry import GRAPH, check_metric, quantizer_name
from lancelet.index.vector.quantizers.rotation import FastRotation
from lancelet.index.vector.quantizers.rq import BITS_MAX, DEFAULT_BITS, RotatedCodes
from lancelet.index.vector.quantizers.sq import ScalarCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.vectors import matrix_of, vector_type_of
from lancelet.values import dataclass

PARTITIONS_MAX: Final = 4096
_TARGETS: Final = {"IVF_FLAT": 4096, "IVF_PQ": 8192, "IVF_SQ": 8192, "IVF_RQ": 4096}
_GRAPH_TARGET: Final = 1 << 20
_SEED: Final = 42


def default_target(name: str) -> int:
    """Return the default partition size of an index kind in rows.

    >>> default_target("IVF_PQ")
    8192
    """
    return _TARGETS.get(name, _GRAPH_TARGET)


@dataclass(frozen=True, slots=True, eq=False)
class IvfRequest:
    """Parameters for building a vector index. None selects a default.

    `models` are results of `train_models` shared by several segments. With an `origin`, the segment
    is written in the legacy layout. `assigned` contains precomputed partitions; other rows are
    skipped.
    """

    name: str
    metric: Metric = Metric.L2
    partitions: int | None = None
    target_rows: int | None = None
    num_sub_vectors: int | None = None
    bits: int | None = None
    max_iterations: int = 50
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
    assigned: AssignedPartitions | None = None
    progress: Progress = silent

    @staticmethod
    def from_parameters(parameters: Parameters) -> IvfRequest:
        """Return the request in the parameters."""
        request = parameters.values["request"]
        if not isinstance(request, IvfRequest):
            raise InvalidInputError("a vector index requires an IvfRequest")
        return request

    @property
    def graph_settings(self) -> GraphSettings | None:
        """Build settings of the graphs, or None if the kind has no graphs."""
        if not self.name.startswith(GRAPH):
            return None
        return GraphSettings(self.m, self.ef_construction, self.max_level)

    @property
    def target(self) -> int:
        """Target number of rows per partition."""
        return self.target_rows or default_target(self.name)

    def count_for(self, num_rows: int) -> int:
        """Return the number of partitions for `num_rows` rows.

        An explicit number is used as is, except for PQ, which requires enough rows per partition.

        >>> IvfRequest("IVF_FLAT").count_for(20_000)
        4
        """
        if self.centroids is not None:
            return len(self.centroids)
        if self.partitions is not None and quantizer_name(self.name) != "PQ":
            return max(1, min(self.partitions, num_rows))
        count = self.partitions or min(max(num_rows // self.target, 1), PARTITIONS_MAX)
        return max(1, min(count, num_rows // self.sample_rate))

    def sample_size(self, num_rows: int) -> int:
        """Return the maximum number of rows sampled for training.

        >>> IvfRequest("IVF_PQ").sample_size(20_000), IvfRequest("IVF_FLAT").sample_size(20_000)
        (65536, 1024)
        """
        # Codewords and quantization bounds are trained on the same sample as centroids.
        is_learned = quantizer_name(self.name) in {"PQ", "SQ"}
        num_codewords = 1 << min(self.bits or 8, 8) if is_learned else 1
        return max(self.count_for(num_rows), num_codewords) * self.sample_rate

    @staticmethod
    def like(segment: IvfSegment) -> IvfRequest:
        """Return the request that reproduces a segment, as far as it is recorded."""
        details, settings = segment.details, segment.quantizer.settings()
        request = IvfRequest(
            segment.name,
            segment.model.metric,
            target_rows=details.target_rows or None,
            partitions=None if details.target_rows else segment.model.partitions,
            num_sub_vectors=settings.get("num_sub_vectors"),
            bits=settings.get("num_bits"),
            transposed=not settings.get("skip_transpose", False),
        )
        if segment.graphs is None:
            return request
        graph_settings = segment.graphs.settings
        return replace(
            request,
            m=graph_settings.m,
            ef_construction=graph_settings.ef_construction,
            max_level=graph_settings.max_level,
        )

    @staticmethod
    def with_details(details: IvfDetails) -> IvfRequest:
        """Return the request recorded for an index without rows."""
        if details.name is None:
            raise UnsupportedError(
                "the kind of a vector index is not recorded; drop the index and create it again"
            )
        names = {"num_sub_vectors": "num_sub_vectors", "num_bits": "bits"}
        names |= {key: key for key in ("m", "ef_construction", "max_level")}
        values: dict[str, Any] = {
            name: int(details.values[key]) for key, name in names.items() if details.values.get(key)
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
        """Return the details of an index without rows."""
        vector_type = self.comparable_type(data_type)
        num_sub_vectors = self.num_sub_vectors or default_num_sub_vectors(vector_type.list_size)
        return self._details({"num_bits": self.bits or 8, "num_sub_vectors": num_sub_vectors})

    def comparable_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the vector type of a column. Raise if the index does not support it."""
        check_metric(self.name, self.metric)
        vector_type = vector_type_of(data_type)
        if vector_type is None:
            raise InvalidInputError("the column does not contain vectors", found=str(data_type))
        if (vector_type.value_type == pa.uint8()) != (self.metric is Metric.HAMMING):
            raise InvalidInputError(
                "the hamming metric requires uint8 vectors, other metrics require floats",
                metric=METRIC_NAMES[self.metric],
                found=str(vector_type.value_type),
            )
        return vector_type

    def details(self, quantizer: Quantizer) -> IvfDetails:
        """Return the details of the index for the table metadata."""
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
            "lance.ivf.max_iters": str(self.max_iterations),
            "lance.ivf.sample_rate": str(self.sample_rate),
        }
        if quantizer_name(self.name) == "PQ":
            hints["lance.pq.max_iters"] = str(self.max_iterations)
            hints["lance.pq.sample_rate"] = str(self.sample_rate)
            hints["lance.skip_transpose"] = "false" if self.transposed else "true"
        target, partitions = self.target_rows or 0, self.partitions or 0
        return IvfDetails(self.name, self.metric, target, values, hints, partitions)


def train_models(rows: IndexedRows, request: IvfRequest) -> tuple[IvfModel, Quantizer]:
    """Train the models that the request does not provide, on a sample of the rows."""
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
    """Return a random sample of about `count` vectors, or all vectors if there are fewer."""
    random = np.random.default_rng(seed)
    share = 1.0 if count >= rows.num_rows else count / rows.num_rows
    samples: list[Matrix] = []
    for values, numbers in rows.parts:
        if share == 1:
            samples.append(matrix_of(values, numbers, metric)[0])
            continue
        indices = np.flatnonzero(random.random(len(values)) < share)
        samples.append(matrix_of(values.take(indices), numbers[indices], metric)[0])
    if not samples:
        return np.empty((0, 0))
    return np.concatenate(samples)


def _model(sample: Matrix, request: IvfRequest, dtype: np.dtype[Any], partitions: int) -> IvfModel:
    if request.centroids is not None:
        if request.centroids.ndim != 2 or request.centroids.shape[1] != sample.shape[1]:
            raise InvalidInputError(
                "IVF centroids must have the dimension of the column",
                found=list(request.centroids.shape),
                dimension=sample.shape[1],
            )
        return IvfModel(request.metric, request.centroids.astype(dtype))
    return IvfModel.train(
        _subsample(sample, partitions * request.sample_rate, request.seed),
        request.metric,
        dtype,
        partitions=partitions,
        seed=request.seed,
        max_iterations=request.max_iterations,
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
            "IVF_RQ requires a vector dimension divisible by 8 and 1 to 9 bits",
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
            "wrong number of rotation signs", found=len(signs), dimension=dimension
        )
    rotation = FastRotation(dimension, signs)
    return RotatedCodes(request.metric, dimension, bits, rotation, request.transposed)


def _product_codes(
    sample: Matrix, model: IvfModel, request: IvfRequest, dtype: np.dtype[Any]
) -> ProductCodes:
    dimension, bits = sample.shape[1], request.bits or 8
    num_sub_vectors = request.num_sub_vectors or default_num_sub_vectors(dimension)
    if dimension % num_sub_vectors:
        raise InvalidInputError(
            f"dimension ({dimension}) must be divisible by num_sub_vectors ({num_sub_vectors})"
        )
    if bits not in {4, 8} or num_sub_vectors * bits % 8:
        raise InvalidInputError(
            "PQ codes require 8 bits, or 4 bits and an even number of sub-vectors",
            num_bits=bits,
            num_sub_vectors=num_sub_vectors,
        )
    if request.codebook is not None:
        if request.codebook.size != dimension << bits:
            raise InvalidInputError(
                "wrong number of values in a PQ codebook",
                found=request.codebook.size,
                expected=dimension << bits,
            )
        book = request.codebook.reshape(
            num_sub_vectors, 1 << bits, dimension // num_sub_vectors
        ).astype(dtype)
        return ProductCodes(request.metric, book, bits, request.transposed)
    sample = _subsample(sample, request.sample_rate << bits, request.seed)
    residual = residuals(sample, model.assign(sample), model.centroids, request.metric)
    return ProductCodes.train(
        residual,
        request.metric,
        dtype,
        num_sub_vectors=num_sub_vectors,
        bits=bits,
        seed=request.seed,
        max_iterations=request.max_iterations,
        transposed=request.transposed,
        progress=lambda done: request.progress("train_quantizer", done, num_sub_vectors),
    )


def _subsample(sample: Matrix, count_max: int, seed: int) -> Matrix:
    """Return a random sample of at most `count_max` rows."""
    if len(sample) <= count_max:
        return sample
    indices = np.random.default_rng(seed).choice(len(sample), count_max, replace=False)
    return sample[np.sort(indices)]


def default_num_sub_vectors(dimension: int) -> int:
    """Return the default number of sub-vectors: of 16 elements each, else 8, else 1 sub-vector.

    >>> default_num_sub_vectors(128), default_num_sub_vectors(24), default_num_sub_vectors(7)
    (8, 3, 1)
    """
    for size in (16, 8):
        if dimension % size == 0:
            return dimension // size
    return math.gcd(dimension, 1)

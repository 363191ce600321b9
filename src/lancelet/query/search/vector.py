"""Searching for the nearest vectors: what a caller may ask, checked against the table.

nearest={"column": "v", "q": [0.1, 0.2], "k": 10, "metric": "cosine"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.kernels import Metric
from lancelet.query.plan import ScanPlan
from lancelet.query.search.exact import ExactQuery, exact_search
from lancelet.query.search.hits import Hits

METRICS: Final = {
    "l2": Metric.L2,
    "euclidean": Metric.L2,
    "cosine": Metric.COSINE,
    "dot": Metric.DOT,
    "hamming": Metric.HAMMING,
}
COUNT: Final = 10


class NotVectorsError(InvalidInputError, TypeError):
    """The column does not hold vectors."""


@dataclass(frozen=True, slots=True, eq=False)
class VectorSearch:
    """A search for the nearest vectors; what is None is for the index to choose."""

    field: Field
    queries: tuple[npt.NDArray[Any], ...]
    is_batch: bool
    count: int = COUNT
    metric: Metric | None = None
    probes_min: int | None = None
    probes_max: int | None = None
    refine_factor: int | None = None
    ef: int | None = None
    lower: float | None = None
    upper: float | None = None
    use_index: bool = True

    @property
    def score_field(self) -> pa.Field:
        """The column of distances."""
        return pa.field("_distance", pa.float32())

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the nearest rows."""
        is_bits = _element(self.field.arrow_type) == pa.uint8()
        metric = self.metric
        if metric is None:
            metric = Metric.HAMMING if is_bits else Metric.L2
        query = ExactQuery(self.field, self.queries, metric, self.count, self.lower, self.upper)
        return exact_search(plan.snapshot, query, plan.options.fragments, rows)


def read_vector_search(schema: Schema, wanted: Mapping[str, Any]) -> VectorSearch:
    """Return the search that a caller asked for, by the names that pylance has."""
    field = _vector_field(schema, wanted["column"])
    queries, is_batch = _queries(wanted["q"], field)
    count = COUNT if wanted.get("k") is None else int(wanted["k"])
    if count < 1:
        raise InvalidInputError(f"Nearest-K must be > 0 but got {count}")
    least, most = _probes(wanted)
    lower, upper = wanted.get("distance_range") or (None, None)
    refine = wanted.get("refine_factor")
    if refine is not None and int(refine) < 1:
        raise InvalidInputError(f"Refine factor must be 1 or greater but got {refine}")
    return VectorSearch(
        field,
        queries,
        is_batch,
        count,
        _metric(wanted.get("metric"), field),
        least,
        most,
        None if refine is None else int(refine),
        wanted.get("ef"),
        lower,
        upper,
        use_index=wanted.get("use_index", True) is not False,
    )


def _vector_field(schema: Schema, column: str) -> Field:
    try:
        field = schema.field_by_path(column)
    except FieldNotFoundError as error:
        raise FieldNotFoundError(f"Embedding column {column} is not in the dataset") from error
    if _dimension(field.arrow_type) is None:
        raise NotVectorsError(
            f"Query column {column} must be a vector. Got {field.arrow_type}.", column=column
        )
    return field


def _vector_type(data_type: pa.DataType) -> pa.DataType | None:
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        data_type = data_type.value_type
    if not pa.types.is_fixed_size_list(data_type):
        return None
    element = data_type.value_type
    return data_type if pa.types.is_floating(element) or element == pa.uint8() else None


def _dimension(data_type: pa.DataType) -> int | None:
    found = _vector_type(data_type)
    return None if found is None else int(found.list_size)


def _element(data_type: pa.DataType) -> pa.DataType:
    found = _vector_type(data_type)
    assert found is not None, "the column was checked to hold vectors"
    return found.value_type


def _queries(given: Any, field: Field) -> tuple[tuple[npt.NDArray[Any], ...], bool]:
    """Return each query, and whether there are several."""
    dimension, data_type = _dimension(field.arrow_type), field.arrow_type
    # A query is as precise as what it is compared with.
    vectors = _as_array(given).astype(_element(data_type).to_pandas_dtype())
    if vectors.ndim not in {1, 2} or vectors.shape[-1] != dimension or not vectors.size:
        raise InvalidInputError(
            f"Query vector size {vectors.shape[-1] if vectors.ndim else 0} does not match index "
            f"column size {dimension}"
        )
    if not pa.types.is_fixed_size_list(data_type):
        return (vectors.reshape(-1, vectors.shape[-1]),), False
    if vectors.ndim == 1:
        return (vectors,), False
    return tuple(vectors), True


def _as_array(given: Any) -> npt.NDArray[Any]:
    if isinstance(given, pa.Scalar):
        given = given.as_py()
    if isinstance(given, pa.Array | pa.ChunkedArray):
        is_plain = not pa.types.is_nested(given.type)
        given = given.to_numpy(zero_copy_only=False) if is_plain else given.to_pylist()
    found = np.asarray(given)
    if found.dtype.kind not in "fiub":
        raise InvalidInputError("a query is a vector of numbers", found=str(type(given)))
    return found


def _metric(given: str | None, field: Field) -> Metric | None:
    if given is None:
        return None
    metric = METRICS.get(given.lower())
    if metric is None:
        raise InvalidInputError(
            f"Metric type '{given}' is not supported", known=sorted(set(METRICS))
        )
    is_bits = _element(field.arrow_type) == pa.uint8()
    if is_bits != (metric is Metric.HAMMING):
        raise InvalidInputError(
            "vectors of bytes are compared by hamming, others are not", metric=given
        )
    return metric


def _probes(wanted: Mapping[str, Any]) -> tuple[int | None, int | None]:
    exact = wanted.get("nprobes")
    least, most = wanted.get("minimum_nprobes"), wanted.get("maximum_nprobes")
    if exact is not None:
        least = most = exact
    for given in (least, most):
        if given is not None and int(given) < 1:
            raise InvalidInputError(f"Nprobes must be > 0 but got {given}")
    if least is not None and most is not None and int(least) > int(most):
        raise InvalidInputError("minimum_nprobes must not be above maximum_nprobes")
    return least, most

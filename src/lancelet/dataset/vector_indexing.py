"""The methods of a dataset that build indices of vectors."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_fields
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.dataset.handle import Handle
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.index.vector.layout import METRICS
from lancelet.index.vector.quantizers.registry import KINDS
from lancelet.index.vector.train import IvfRequest
from lancelet.index.vector.vectors import values_of
from lancelet.ops.indexing.vectors import VectorIndexRequest, create_vector_index

_NAMES: Final = {
    "num_partitions": "partitions",
    "target_partition_size": "target_rows",
    "num_sub_vectors": "pieces",
    "num_bits": "bits",
    "max_iters": "rounds",
    "sample_rate": "sample_rate",
    "m": "m",
    "ef_construction": "ef_construction",
    "max_level": "max_level",
}


class VectorIndexMethods:
    """Builds indices of vectors."""

    _handle: Handle

    def create_index(
        self,
        column: str | Sequence[str],
        index_type: str,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,  # noqa: ARG002 - pylance's name
        shuffle_partition_batches: int | None = None,  # noqa: ARG002 - pylance's name
        shuffle_partition_concurrency: int | None = None,  # noqa: ARG002 - pylance's name
        ivf_centroids_file: str | None = None,
        precomputed_partition_dataset: str | None = None,
        storage_options: Any = None,  # noqa: ARG002 - pylance's name
        filter_nan: bool = True,  # noqa: ARG002 - pylance's name
        train: bool = True,
        fragment_ids: Sequence[int] | None = None,
        index_uuid: str | None = None,
        *,
        target_partition_size: int | None = None,
        streaming_sample_rate: int | None = None,  # noqa: ARG002 - pylance's name
        streaming_coreset_rate: int | None = None,  # noqa: ARG002 - pylance's name
        streaming_refine_passes: int | None = None,  # noqa: ARG002 - pylance's name
        skip_transpose: bool = False,
        progress_callback: Callable[..., None] | None = None,
        **parameters: Any,
    ) -> Self:
        """Build an index that finds the nearest vectors.

        Rows without a vector, or with NaN or infinity in it, are left out.

        Args:
            column: The path of the column.
            index_type: `IVF_FLAT`, `IVF_PQ`, `IVF_SQ`, or one of these with `HNSW` in the middle.
            name: By default the path with `_idx` behind it.
            metric: `L2`, `cosine`, `dot`, or `hamming` for bytes.
            replace: Whether an index of that name is replaced; else it is an error.
            num_partitions: How many centroids; by default as many as the size of a partition asks.
            ivf_centroids: Centroids, instead of having them found.
            pq_codebook: The words of PQ, instead of having them found.
            num_sub_vectors: Into how many pieces PQ cuts a vector.
            accelerator: Not needed: centroids are found by matrix products on the CPU.
            index_cache_size: Has no effect: partitions are kept by their size.
            shuffle_partition_batches: Has no effect.
            shuffle_partition_concurrency: Has no effect.
            ivf_centroids_file: Not available; give `ivf_centroids`.
            precomputed_partition_dataset: Not available.
            storage_options: Has no effect: the table has its own.
            filter_nan: Has no effect: what is not finite is always left out.
            train: Whether rows are indexed now, or when the index is first optimised.
            fragment_ids: The fragments to index, by default all.
            index_uuid: The id of the segment, by default a new one.
            target_partition_size: How many rows a partition should have.
            streaming_sample_rate: Has no effect: a sample is always streamed.
            streaming_coreset_rate: Has no effect.
            streaming_refine_passes: Has no effect.
            skip_transpose: Whether codes of PQ are stored row by row.
            progress_callback: Called with the phase, what is done of it, and how much it is.
            parameters: `num_bits`, `max_iters`, `sample_rate`, and for graphs `m`,
                `ef_construction` and `max_level`.
        """
        refused = {
            "ivf_centroids_file": ivf_centroids_file,
            "precomputed_partition_dataset": precomputed_partition_dataset,
        }
        given = sorted(key for key, value in refused.items() if value is not None)
        if given:
            raise UnsupportedError("these options are not available", options=given)
        del accelerator
        values = {
            **parameters,
            "num_partitions": num_partitions,
            "num_sub_vectors": num_sub_vectors,
            "target_partition_size": target_partition_size,
        }
        ivf = _request(index_type, metric, values, skip_transpose=skip_transpose)
        ivf = _with_models(ivf, ivf_centroids, pq_codebook, progress_callback)
        request = VectorIndexRequest(
            _column(column),
            ivf,
            name,
            replaces=replace,
            is_trained=train,
            fragments=None if fragment_ids is None else tuple(fragment_ids),
            uuid=None if index_uuid is None else uuid.UUID(index_uuid),
        )
        self._handle.snapshot = create_vector_index(self._handle.snapshot, request)
        return self


def _column(column: str | Sequence[str]) -> str:
    if isinstance(column, str):
        return column
    if len(column) != 1:
        raise InvalidInputError("an index of vectors is of one column", columns=list(column))
    return column[0]


def _request(
    index_type: str, metric: str, values: dict[str, Any], *, skip_transpose: bool
) -> IvfRequest:
    name = str(index_type).upper()
    if name not in KINDS:
        raise UnsupportedError(
            f"Only {list(KINDS)} index types supported. Got {index_type}", found=name
        )
    known = METRICS.get(str(metric).lower())
    if known is None:
        raise InvalidInputError(f"Metric {metric} not supported.", known=sorted(METRICS))
    unknown = sorted(set(values) - set(_NAMES))
    if unknown:
        raise InvalidInputError("an index of vectors has no such parameters", found=unknown)
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise InvalidInputError(f"{key} must be a whole number above 0", found=str(value))
        chosen[_NAMES[key]] = int(value)
    return IvfRequest(name, known, transposed=not skip_transpose, **chosen)


def _with_models(
    request: IvfRequest,
    centroids: Any,
    codebook: Any,
    progress: Callable[..., None] | None,
) -> IvfRequest:
    if centroids is not None:
        request = replace_fields(request, centroids=_matrix(centroids))
    if codebook is not None:
        request = replace_fields(request, codebook=_matrix(codebook))
    if progress is not None:
        request = replace_fields(request, progress=progress)
    return request


def _matrix(given: Any) -> npt.NDArray[Any]:
    if isinstance(given, pa.FixedShapeTensorArray):
        found: npt.NDArray[Any] = given.to_numpy_ndarray()
        return found
    if isinstance(given, pa.FixedSizeListArray):
        return values_of(given).reshape(len(given), given.type.list_size)
    return np.asarray(given)

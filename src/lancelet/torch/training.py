"""Trains IVF centroids and PQ codebooks on an accelerator, and encodes vectors with them.

    train_ivf_centroids_on_accelerator   vectors               centroids
    compute_partitions                   vectors, centroids    rows, partitions, residuals: a table
    train_pq_codebook_on_accelerator     that table            a codebook for each sub-vector
    compute_pq_codes                     that table, codebooks rows, partitions, codes: a table

A residual is a vector minus its centroid, split into the sub-vectors of PQ. The `one_pass`
functions do two steps each. Pass the results to `create_index` as `ivf_centroids` and
`pq_codebook`. A device is `cuda`, `cuda:1`, `mps`, or `cpu`, with the same
results except for rounding.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.torch.data import LanceDataset as Batches
from lancelet.torch.device import preferred_device
from lancelet.torch.kmeans import KMeans
from lancelet.torch.required import require_torch

if TYPE_CHECKING:
    from lancelet.dataset import LanceDataset

_NUM_CODES: Final = 256
_PQ_SAMPLE: Final = _NUM_CODES * 256
_SUB_VECTOR_PREFIX: Final = "__residual_subvec_"


def train_ivf_centroids_on_accelerator(
    dataset: LanceDataset,
    column: str,
    k: int,
    metric_type: str,
    accelerator: Any,
    batch_size: int = 40960,
    *,
    sample_rate: int = 256,
    max_iters: int = 50,
    filter_nan: bool = True,
) -> tuple[npt.NDArray[Any], KMeans]:
    """Return the IVF centroids, and the k-means model that assigns vectors to them.

    Args:
        dataset: The dataset with the vectors.
        column: The vector column.
        k: The number of partitions.
        metric_type: `L2`, `cosine` or `dot`.
        accelerator: The device to compute on.
        batch_size: The number of vectors in a batch.
        sample_rate: The number of vectors sampled for each partition.
        max_iters: The maximum number of iterations.
        filter_nan: Whether to skip null vectors.
    """
    sample = Batches(
        dataset,
        batch_size,
        columns=[column],
        samples=k * sample_rate,
        filter=_null_filter(dataset, column, filter_nan),
        cache=True,
    )
    kmeans = KMeans(
        int(k),
        metric=_metric(metric_type),
        max_iters=max_iters,
        device=preferred_device(accelerator),
    )
    kmeans.fit(sample)
    return _array(kmeans.centroids), kmeans


def compute_partitions(
    dataset: LanceDataset,
    column: str,
    kmeans: KMeans,
    batch_size: int = 40960,
    dst_dataset_uri: str | os.PathLike[str] | None = None,
    allow_cuda_tf32: bool = True,
    num_sub_vectors: int | None = None,
    filter_nan: bool = True,
    sample_size: int | None = None,
) -> str:
    """Write a table with the partition of each row, and return its URI.

    Args:
        dataset: The dataset with the vectors.
        column: The vector column.
        kmeans: The k-means model that assigns vectors to partitions.
        batch_size: The number of vectors in a batch.
        dst_dataset_uri: The URI to write to, by default a new temporary directory.
        allow_cuda_tf32: Whether matrix products on CUDA may use TF32.
        num_sub_vectors: The number of sub-vectors of each residual; None writes no residuals.
        filter_nan: Whether to skip null vectors; vectors that are not finite are always skipped.
        sample_size: The number of rows to sample, all by default.
    """
    rows = Batches(
        dataset,
        batch_size,
        columns=[column, "_rowid"] if sample_size else [column],
        filter=_null_filter(dataset, column, filter_nan),
        samples=sample_size or 0,
        with_row_id=not sample_size,
    )
    dimension = int(_centroids(kmeans).shape[1])
    _check_dimension(dimension, num_sub_vectors or 1)
    fields = [pa.field("row_id", pa.uint64()), pa.field("partition", pa.uint32())]
    sub_vector_type = pa.list_(pa.float32(), dimension // (num_sub_vectors or 1))
    fields += [pa.field(name, sub_vector_type) for name in _sub_vector_names(num_sub_vectors or 0)]
    schema = pa.schema(fields)

    def assigned_batches() -> Iterator[pa.RecordBatch]:
        for ids, partitions, residuals in _residuals(rows, column, kmeans):
            columns = [pa.array(ids), pa.array(partitions)]
            if num_sub_vectors:
                columns += [
                    pa.FixedSizeListArray.from_arrays(
                        pa.array(np.ascontiguousarray(part).reshape(-1), pa.float32()),
                        type=sub_vector_type,
                    )
                    for part in np.split(_array(residuals), num_sub_vectors, axis=1)
                ]
            yield pa.record_batch(columns, schema=schema)

    with _Precision(allow_cuda_tf32):
        return _write_table(
            pa.RecordBatchReader.from_batches(schema, assigned_batches()), dst_dataset_uri
        )[0]


def train_pq_codebook_on_accelerator(
    dataset: LanceDataset | str | os.PathLike[str],
    metric_type: str,
    accelerator: Any,
    num_sub_vectors: int,
    batch_size: int = 40960,
    dtype: Any = np.float32,
) -> tuple[npt.NDArray[Any], list[KMeans]]:
    """Return the codebook of each sub-vector, and the k-means models that assign codes.

    Args:
        dataset: The table written by `compute_partitions` with the same `num_sub_vectors`.
        metric_type: `L2`, `cosine` or `dot`.
        accelerator: The device to compute on.
        num_sub_vectors: The number of sub-vectors.
        batch_size: The number of residuals in a batch.
        dtype: The type of the codebooks.
    """
    names = _sub_vector_names(num_sub_vectors)
    # Residuals of normalized vectors use the L2 distance.
    metric = _metric("l2" if metric_type.lower() == "cosine" else metric_type)
    sample = Batches(dataset, batch_size, columns=names, samples=_PQ_SAMPLE, cache=True)
    kmeans_list = []
    for name in names:
        kmeans = KMeans(_NUM_CODES, metric=metric, device=preferred_device(accelerator))
        kmeans.fit(sample, column=name if num_sub_vectors > 1 else None)
        kmeans_list.append(kmeans)
    return np.stack([_array(kmeans.centroids) for kmeans in kmeans_list]).astype(dtype), kmeans_list


def compute_pq_codes(
    dataset: LanceDataset,
    kmeans_list: Sequence[KMeans],
    batch_size: int = 40960,
    dst_dataset_uri: str | os.PathLike[str] | None = None,
    allow_cuda_tf32: bool = True,
) -> tuple[str, list[str]]:
    """Write a table with the PQ codes of each row; return its URI and its files.

    Args:
        dataset: The table written by `compute_partitions` with the same `num_sub_vectors`.
        kmeans_list: The k-means model of each sub-vector.
        batch_size: The number of residuals in a batch.
        dst_dataset_uri: The URI to write to, by default a new temporary directory.
        allow_cuda_tf32: Whether matrix products on CUDA may use TF32.
    """
    names = _sub_vector_names(len(kmeans_list))
    rows = Batches(dataset, batch_size, columns=["row_id", "partition", *names])
    schema = _code_schema(len(kmeans_list))

    def code_batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            codes = _codes([batch[name] for name in names], kmeans_list)
            yield _code_batch(schema, _array(batch["row_id"]), _array(batch["partition"]), codes)

    with _Precision(allow_cuda_tf32):
        return _write_table(
            pa.RecordBatchReader.from_batches(schema, code_batches()), dst_dataset_uri
        )


def one_pass_train_ivf_pq_on_accelerator(
    dataset: LanceDataset,
    column: str,
    k: int,
    metric_type: str,
    accelerator: Any,
    num_sub_vectors: int,
    batch_size: int = 40960,
    *,
    sample_rate: int = 256,
    max_iters: int = 50,
    filter_nan: bool = True,
) -> tuple[npt.NDArray[Any], KMeans, npt.NDArray[Any], list[KMeans]]:
    """Return IVF centroids and PQ codebooks, with their k-means models, in one pass."""
    centroids, kmeans = train_ivf_centroids_on_accelerator(
        dataset,
        column,
        k,
        metric_type,
        accelerator,
        batch_size,
        sample_rate=sample_rate,
        max_iters=max_iters,
        filter_nan=filter_nan,
    )
    with tempfile.TemporaryDirectory() as folder:
        residuals = compute_partitions(
            dataset,
            column,
            kmeans,
            batch_size,
            Path(folder, "residuals.lance"),
            num_sub_vectors=num_sub_vectors,
            filter_nan=filter_nan,
            sample_size=_PQ_SAMPLE,
        )
        codebook, kmeans_list = train_pq_codebook_on_accelerator(
            residuals, metric_type, accelerator, num_sub_vectors, batch_size, centroids.dtype
        )
    return centroids, kmeans, codebook, kmeans_list


def one_pass_assign_ivf_pq_on_accelerator(
    dataset: LanceDataset,
    column: str,
    metric_type: str,
    accelerator: Any,
    ivf_kmeans: KMeans,
    pq_kmeans_list: Sequence[KMeans],
    dst_dataset_uri: str | os.PathLike[str] | None = None,
    batch_size: int = 40960,
    *,
    filter_nan: bool = True,
    allow_cuda_tf32: bool = True,
) -> tuple[str, list[str]]:
    """Write a table with the partition and the PQ codes of each row; return its URI and its files.

    Args:
        dataset: The dataset with the vectors.
        column: The vector column.
        metric_type: Ignored; the models have a metric.
        accelerator: Ignored; the models have a device.
        ivf_kmeans: The k-means model that assigns vectors to partitions.
        pq_kmeans_list: The k-means model of each sub-vector.
        dst_dataset_uri: The URI to write to, by default a new temporary directory.
        batch_size: The number of vectors in a batch.
        filter_nan: Whether to skip null vectors; vectors that are not finite are always skipped.
        allow_cuda_tf32: Whether matrix products on CUDA may use TF32.
    """
    del metric_type, accelerator
    _check_dimension(int(_centroids(ivf_kmeans).shape[1]), len(pq_kmeans_list))
    rows = Batches(
        dataset,
        batch_size,
        columns=[column],
        filter=_null_filter(dataset, column, filter_nan),
        with_row_id=True,
    )
    schema = _code_schema(len(pq_kmeans_list))

    def code_batches() -> Iterator[pa.RecordBatch]:
        for ids, partitions, residuals in _residuals(rows, column, ivf_kmeans):
            parts = require_torch().chunk(residuals, len(pq_kmeans_list), dim=1)
            yield _code_batch(schema, ids, partitions, _codes(parts, pq_kmeans_list))

    with _Precision(allow_cuda_tf32):
        return _write_table(
            pa.RecordBatchReader.from_batches(schema, code_batches()), dst_dataset_uri
        )


def _null_filter(dataset: LanceDataset, column: str, skip_nulls: bool) -> str | None:
    """Return a filter for non-null vectors, or None if it is not needed."""
    is_needed = skip_nulls and dataset.schema.field(column).nullable
    return f"{column} is not null" if is_needed else None


def _residuals(
    rows: Batches, column: str, kmeans: KMeans
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], Any]]:
    """Yield the row ids, partitions and residuals of the assigned rows."""
    centroids = _centroids(kmeans)
    for batch in rows:
        vectors = kmeans.prepared(batch[column].to(centroids.device))
        partitions = kmeans.transform(vectors)
        is_assigned = partitions >= 0
        ids = _array(batch["_rowid"][is_assigned.cpu()]).astype(np.uint64)
        partitions = partitions[is_assigned]
        residuals = vectors[is_assigned] - centroids[partitions]
        yield ids, _array(partitions).astype(np.uint32), residuals


def _codes(parts: Sequence[Any], kmeans_list: Sequence[KMeans]) -> npt.NDArray[np.uint8]:
    codes = [
        _array(kmeans.transform(part)) for part, kmeans in zip(parts, kmeans_list, strict=True)
    ]
    return np.stack(codes, axis=1).astype(np.uint8)


def _code_batch(
    schema: pa.Schema,
    ids: npt.NDArray[Any],
    partitions: npt.NDArray[Any],
    codes: npt.NDArray[np.uint8],
) -> pa.RecordBatch:
    columns = [
        pa.array(ids, pa.uint64()),
        pa.array(partitions, pa.uint32()),
        pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1)), type=schema.field(2).type),
    ]
    return pa.record_batch(columns, schema=schema)


def _code_schema(num_sub_vectors: int) -> pa.Schema:
    codes = pa.list_(pa.uint8(), num_sub_vectors)
    return pa.schema({"row_id": pa.uint64(), "__ivf_part_id": pa.uint32(), "__pq_code": codes})


def _write_table(
    rows: pa.RecordBatchReader, uri: str | os.PathLike[str] | None
) -> tuple[str, list[str]]:
    from lancelet.dataset import write_dataset  # noqa: PLC0415 - only needed for writing

    target_uri = tempfile.mkdtemp() if uri is None else os.fspath(uri)
    table = write_dataset(rows, target_uri)
    files = [file.path for each in table.get_fragments() for file in each.data_files()]
    return target_uri, files


class _Precision:
    """A context that sets whether matrix products on CUDA may use TF32."""

    def __init__(self, allow_tf32: bool) -> None:
        self._setting = require_torch().backends.cuda.matmul
        self._allow_tf32 = allow_tf32
        self._before = self._setting.allow_tf32

    def __enter__(self) -> None:
        self._setting.allow_tf32 = self._allow_tf32

    def __exit__(self, *_: object) -> None:
        self._setting.allow_tf32 = self._before


def _metric(name: str) -> Any:
    return name.lower()


def _sub_vector_names(count: int) -> list[str]:
    return [f"{_SUB_VECTOR_PREFIX}{number}" for number in range(1, count + 1)]


def _check_dimension(dimension: int, count: int) -> None:
    if dimension % count:
        raise InvalidInputError(
            "the dimension must be a multiple of the number of sub-vectors",
            dimension=dimension,
            num_sub_vectors=count,
        )


def _centroids(kmeans: KMeans) -> Any:
    if kmeans.centroids is None:
        raise InvalidInputError("the model has no centroids; call `fit` first", k=kmeans.k)
    return kmeans.centroids


def _array(tensor: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.cpu().numpy()
    return array

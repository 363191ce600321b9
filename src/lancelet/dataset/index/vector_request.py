"""Conversion of the arguments of pylance's index methods to validated requests.

index_type="IVF_PQ", metric="L2", num_partitions=16, num_sub_vectors=8
IvfRequest("IVF_PQ", Metric.L2, partitions=16, pieces=8)

An accelerator trains centroids and PQ codebooks, if one is available.

An accelerator is optional: without PyTorch or without the device, a log message is written and the
CPU trains the models. Both produce models of equal quality from different random choices.
Codebooks are trained for `L2` and `cosine`, which encode residuals.
"""

from __future__ import annotations

import io
import json
import os
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import index as kinds
from lancelet import upkeep
from lancelet.dataset.handle import OpenOptions, locate, text_of
from lancelet.errors import InvalidInputError, UnsupportedError, similar_names
from lancelet.format.schema import Schema
from lancelet.index.kernels import Metric
from lancelet.io.open import open_store
from lancelet.log import LOGGER
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import open_snapshot
from lancelet.torch.device import preferred_device
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.index.vector.model import AssignedPartitions
    from lancelet.index.vector.train import IvfRequest
    from lancelet.upkeep.indexing.vectors import VectorIndexRequest

_NUMBERS: Final = {
    "num_partitions": "partitions",
    "target_partition_size": "target_rows",
    "num_sub_vectors": "num_sub_vectors",
    "num_bits": "bits",
    "max_iters": "max_iterations",
    "sample_rate": "sample_rate",
    "m": "m",
    "ef_construction": "ef_construction",
    "max_level": "max_level",
}
_WITHOUT_EFFECT: Final = frozenset({"index_file_version", "implementation", "use_torch"})
_PARTITION_COLUMNS: Final = ("row_id", "partition")
_BYTE_BITS: Final = 8
_FILE_VERSIONS: Final = ("V3", "LEGACY")
_FLOATS: Final = frozenset({np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)})
_CODEBOOK_NDIM: Final = 3
_CALLER: Final = 6
"""The stack depth from a warning to the caller of `create_index`."""

_CODE_BITS = 8
_ITERATIONS = 50
_SAMPLE_RATE = 256


class WrongTypeError(InvalidInputError, TypeError):
    """An argument has the wrong type."""


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndexArguments:
    """The arguments of a call; see `VectorIndexMethods.create_index`."""

    column: str | Sequence[str]
    index_type: str
    name: str | None = None
    metric: str = "L2"
    replace: bool = False
    ivf_centroids: Any = None
    ivf_centroids_file: str | None = None
    pq_codebook: Any = None
    rabitq_model: str | None = None
    train: bool = True
    fragment_ids: Sequence[int] | None = None
    index_uuid: str | None = None
    skip_transpose: bool = False
    assigned: AssignedPartitions | None = None
    progress_callback: Callable[..., None] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def trained_on(self, accelerator: Any, table: LanceDataset) -> VectorIndexArguments:
        """Return the arguments with models trained on the accelerator, if one is available."""
        is_given = self.ivf_centroids is not None or not isinstance(self.column, str)
        if accelerator is None or not self.train or is_given:
            return self
        values = {**self.values, "metric": self.metric}
        centroids, codebook = train_on_accelerator(
            accelerator, table, str(self.column), self.index_type, values
        )
        return replace(self, ivf_centroids=centroids, pq_codebook=codebook)

    def request(self, schema: Schema) -> VectorIndexRequest:
        """Return the validated request."""
        ivf = _with_models(self._ivf(), self, schema)
        if self.assigned is not None:
            if ivf.centroids is None:
                raise InvalidInputError(
                    "ivf_centroids must be provided when precomputed_partition_dataset is provided"
                )
            ivf = replace(ivf, assigned=self.assigned)
        if self.progress_callback is not None:
            ivf = replace(ivf, progress=self.progress_callback)
        return upkeep.indexing.vectors.VectorIndexRequest(
            _column(self.column),
            ivf,
            self.name,
            replaces=self.replace,
            is_trained=self.train,
            fragments=None if self.fragment_ids is None else tuple(self.fragment_ids),
            uuid=None if self.index_uuid is None else uuid.UUID(self.index_uuid),
            in_one_file=self._in_one_file(),
        )

    def _in_one_file(self) -> bool:
        """Return whether the file layout of the first releases is requested."""
        given = str(self.values.get("index_file_version") or "V3").upper()
        if given not in _FILE_VERSIONS:
            raise InvalidInputError(
                "unknown version of vector index files", found=given, expected=_FILE_VERSIONS
            )
        if given == "LEGACY" and str(self.index_type).upper() == "IVF_PQ":
            if int(self.values.get("num_bits") or _BYTE_BITS) != _BYTE_BITS:
                raise UnsupportedError("index files of version LEGACY require 8-bit codes")
            return True
        return False

    def _ivf(self) -> IvfRequest:
        name = str(self.index_type).upper()
        if name not in kinds.vector.quantizers.registry.KINDS:
            raise UnsupportedError(
                f"Only {list(kinds.vector.quantizers.registry.KINDS)} index types supported. "
                f"Got {self.index_type}"
                f"{similar_names(name, list(kinds.vector.quantizers.registry.KINDS))}",
                found=name,
            )
        values = {key: own for key, own in self.values.items() if key not in _WITHOUT_EFFECT}
        numbers: dict[str, Any] = {_NUMBERS[key]: own for key, own in _numbers(values).items()}
        return kinds.vector.train.IvfRequest(
            name, _metric(self.metric), transposed=not self.skip_transpose, **numbers
        )


def _column(column: str | Sequence[str]) -> str:
    if isinstance(column, str):
        return column
    if len(column) != 1:
        raise InvalidInputError("a vector index requires exactly one column", columns=list(column))
    return column[0]


def _metric(given: str) -> Metric:
    metric = kinds.vector.layout.METRICS.get(str(given).lower())
    if metric is None:
        raise InvalidInputError(
            f"Metric {given} not supported"
            f"{similar_names(str(given), list(kinds.vector.layout.METRICS)) or '.'}",
            expected=sorted(kinds.vector.layout.METRICS),
        )
    return metric


def _numbers(values: Mapping[str, Any]) -> dict[str, int]:
    for name in sorted(set(values) - set(_NUMBERS)):
        hint = similar_names(name, [*_NUMBERS, "metric"])
        warnings.warn(
            f"create_index ignores the unknown argument {name!r}{hint}", stacklevel=_CALLER
        )
    found: dict[str, int] = {}
    for key, value in values.items():
        if value is None or key not in _NUMBERS:
            continue
        if not isinstance(value, int | float | np.integer) or isinstance(value, bool):
            raise WrongTypeError(f"{key} must be int, got {type(value)}")
        if int(value) != value or value < 1:
            raise InvalidInputError(f"{key} must be a positive integer", found=str(value))
        found[key] = int(value)
    return found


def _with_models(request: IvfRequest, given: VectorIndexArguments, schema: Schema) -> IvfRequest:
    centroids = given.ivf_centroids
    if centroids is not None and given.ivf_centroids_file is not None:
        raise InvalidInputError(
            "ivf_centroids and ivf_centroids_file cannot be provided at the same time"
        )
    if given.ivf_centroids_file is not None:
        store, path = open_store(given.ivf_centroids_file)
        centroids = np.load(io.BytesIO(store.read(path)))
    if centroids is None and given.pq_codebook is not None:
        raise InvalidInputError("ivf_centroids must be specified when pq_codebook is provided")
    if centroids is not None:
        request = replace(request, centroids=_centroids(centroids, request.partitions))
    if given.pq_codebook is not None:
        request = replace(request, codebook=_codebook(given.pq_codebook, request))
    if given.rabitq_model is not None:
        request = _with_rotation(request, given.rabitq_model)
    _check_num_sub_vectors(request, _column(given.column), schema)
    return request


def _centroids(given: Any, partitions: int | None) -> npt.NDArray[Any]:
    found = matrix_of_values(given)
    if found.ndim != 2 or not len(found):
        raise InvalidInputError(
            f"Ivf centroids must be 2D array: (clusters, dim), got {found.shape}"
        )
    if partitions is not None and len(found) != partitions:
        raise InvalidInputError(
            f"Ivf centroids has {len(found)} clusters, but num_partitions={partitions}"
        )
    if isinstance(given, np.ndarray) and found.dtype not in _FLOATS:
        raise WrongTypeError(f"IVF centroids must be floating number, got {found.dtype}")
    return found


def _codebook(given: Any, request: IvfRequest) -> npt.NDArray[Any]:
    found = matrix_of_values(given)
    if isinstance(given, np.ndarray):
        num_codewords = 1 << (request.bits or 8)
        shape = (request.num_sub_vectors, num_codewords)
        if found.ndim != _CODEBOOK_NDIM or found.shape[:2] != shape:
            raise InvalidInputError(
                f"PQ codebook must be 3D array: (sub_vectors, {num_codewords}, dim) for "
                f"num_bits={request.bits or 8}, got {found.shape}"
            )
        if found.dtype not in _FLOATS:
            raise WrongTypeError(f"PQ codebook must be floating number, got {found.dtype}")
    return found


def _with_rotation(request: IvfRequest, model: str) -> IvfRequest:
    try:
        found = json.loads(model)
        signs = np.array(found["fast_rotation_signs"], np.uint8)
        bits = int(found["num_bits"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError("rabitq_model must be JSON with the rotation signs") from error
    return replace(request, rotation_signs=signs, bits=bits)


def _check_num_sub_vectors(request: IvfRequest, column: str, schema: Schema) -> None:
    if request.num_sub_vectors is None or column not in schema.names:
        return
    vector_type = kinds.vector.vectors.vector_type_of(schema.field_by_path(column).arrow_type)
    if vector_type is not None and vector_type.list_size % request.num_sub_vectors:
        raise InvalidInputError(
            f"dimension ({vector_type.list_size}) must be divisible by num_sub_vectors"
            f" ({request.num_sub_vectors})"
        )


def read_assigned_partitions(
    uri: str | os.PathLike[str] | None, storage_options: Mapping[str, str] | None = None
) -> AssignedPartitions | None:
    """Return the partition of each row from a dataset of `assign_ivf_partitions`."""
    if uri is None:
        return None
    location, _ = locate(text_of(uri), OpenOptions(storage_options))
    snapshot = open_snapshot(location)
    missing = [name for name in _PARTITION_COLUMNS if name not in snapshot.schema.names]
    if missing:
        raise InvalidInputError(
            "the dataset of precomputed partitions must have the columns row_id and partition",
            uri=text_of(uri),
            missing=missing,
        )
    rows = execute_to_table(plan_scan(snapshot, ScanOptions(columns=_PARTITION_COLUMNS)))
    ids, labels = (rows.column(name).combine_chunks() for name in _PARTITION_COLUMNS)
    if ids.null_count or labels.null_count:
        raise InvalidInputError("the precomputed partitions contain nulls", uri=text_of(uri))
    return kinds.vector.model.AssignedPartitions.from_unsorted(
        ids.cast(pa.uint64()).to_numpy(), labels.cast(pa.int64()).to_numpy()
    )


def matrix_of_values(given: Any) -> npt.NDArray[Any]:
    """Convert a NumPy or Arrow array to a matrix."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.FixedShapeTensorArray):
        found: npt.NDArray[Any] = given.to_numpy_ndarray()
        return found
    if isinstance(given, pa.FixedSizeListArray):
        return kinds.vector.vectors.values_of(given).reshape(len(given), given.type.list_size)
    return np.asarray(given)


def train_on_accelerator(
    accelerator: Any, table: LanceDataset, column: str, index_type: str, values: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Train centroids and a codebook on an accelerator; None for models to train on the CPU.

    Args:
        accelerator: The device.
        table: The dataset with the vectors.
        column: The vector column.
        index_type: The index kind.
        values: The parameters of the index, including the metric.
    """
    partitions, metric = values.get("num_partitions"), str(values["metric"])
    if not partitions or metric.lower() == "hamming" or not _has(accelerator):
        return None, None
    from lancelet.torch.training import (  # noqa: PLC0415 - PyTorch is slow to load
        one_pass_train_ivf_pq_on_accelerator,
        train_ivf_centroids_on_accelerator,
    )

    options: dict[str, Any] = {
        "sample_rate": values.get("sample_rate") or _SAMPLE_RATE,
        "max_iters": values.get("max_iters") or _ITERATIONS,
    }
    trains_codebook = index_type.upper().endswith("PQ") and values.get("num_bits") in (
        None,
        _CODE_BITS,
    )
    if not trains_codebook or not values.get("num_sub_vectors") or metric.lower() == "dot":
        found = train_ivf_centroids_on_accelerator(
            table, column, partitions, metric, accelerator, **options
        )
        return found[0], None
    centroids, _, codebook, _ = one_pass_train_ivf_pq_on_accelerator(
        table, column, partitions, metric, accelerator, values["num_sub_vectors"], **options
    )
    return centroids, codebook


def _has(accelerator: Any) -> bool:
    try:
        import torch  # noqa: PLC0415 - an extra

        torch.empty(1, device=preferred_device(accelerator))
    except (ImportError, UnsupportedError, RuntimeError, AssertionError) as error:
        LOGGER.warning(
            "this machine does not support GPU acceleration; falling back to CPU (%s: %s)",
            accelerator,
            error,
        )
        return False
    return True

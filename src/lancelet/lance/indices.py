"""The steps of a vector index build. Mirrors pylance's native module of this name.

    train_ivf_model(dataset, "v", 32, 4, "l2", 256, 50)           4 centroids
    train_pq_model(dataset, "v", 32, 8, "l2", 256, 50, centroids) 256 codewords for 8 sub-vectors
    build_rq_model(32, 1)                                         the RaBitQ rotation as JSON
    transform_vectors, shuffle_.., load_..                        see `lancelet.indices.builder`

`IndicesBuilder` validates its arguments and runs these steps.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.dataset.index.scalar import IndexDescription, IndexSegmentDescription
from lancelet.dataset.index.values import Index as IndexSegment
from lancelet.dataset.index.values import IndexConfig
from lancelet.dataset.index.vector_request import matrix_of_values, read_assigned_partitions
from lancelet.errors import InvalidInputError
from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.index.base import IndexedRows
from lancelet.index.vector.layout import METRICS
from lancelet.index.vector.model import IvfModel as Centroids
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.train import IvfRequest
from lancelet.index.vector.writer import to_column
from lancelet.upkeep.indexing.build import commit_segments, default_name
from lancelet.upkeep.indexing.vector_models import (
    encode_rows,
    read_vectors,
    train_centroids,
    train_codebook,
    write_encoded,
)

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.fragment import LanceFragment

__all__ = [
    "IndexConfig",
    "IndexDescription",
    "IndexSegment",
    "IndexSegmentDescription",
    "build_rq_model",
    "get_ivf_model",
    "load_shuffled_vectors",
    "shuffle_transformed_vectors",
    "train_ivf_model",
    "train_pq_model",
    "transform_vectors",
]

_PARTITION: Final = "__ivf_part_id"
_ROTATION_STEPS: Final = 4
_FLOATS: Final = ("float16", "float32", "float64")
_MOST_BITS: Final = 9


def train_ivf_model(
    dataset: LanceDataset,
    column: str,
    dimension: int,
    num_partitions: int,
    distance_type: str,
    sample_rate: int,
    max_iters: int,
    fragment_ids: Sequence[int] | None = None,
) -> pa.FixedSizeListArray:
    """Train IVF centroids on a sample."""
    request = IvfRequest(
        "IVF_FLAT",
        METRICS[distance_type],
        partitions=num_partitions,
        max_iterations=max_iters,
        sample_rate=sample_rate,
    )
    return _vectors(
        train_centroids(_rows(dataset, column, fragment_ids), request).centroids, dimension
    )


def train_pq_model(
    dataset: LanceDataset,
    column: str,
    dimension: int,
    num_subvectors: int,
    distance_type: str,
    sample_rate: int,
    max_iters: int,
    ivf_centroids: pa.Array,
    fragment_ids: Sequence[int] | None = None,
    num_bits: int = 8,
) -> pa.FixedSizeListArray:
    """Train the PQ codebook on the residuals of a sample."""
    request = IvfRequest(
        "IVF_PQ",
        METRICS[distance_type],
        num_sub_vectors=num_subvectors,
        bits=num_bits,
        max_iterations=max_iters,
        sample_rate=sample_rate,
        centroids=matrix_of_values(ivf_centroids),
    )
    codes = train_codebook(_rows(dataset, column, fragment_ids), request)
    return _vectors(codes.codebook, dimension)


def build_rq_model(dimension: int, num_bits: int = 5, dtype: str = "float32") -> str:
    """Return a random RaBitQ rotation as JSON, for index segments that are built separately.

    Args:
        dimension: The dimension of the vectors, a multiple of 8.
        num_bits: The number of bits per element.
        dtype: The type of the elements; does not affect the rotation.
    """
    if dimension < 1 or dimension % 8:
        raise InvalidInputError("the dimension must be a multiple of 8", dimension=dimension)
    if not 1 <= num_bits <= _MOST_BITS:
        raise InvalidInputError(f"num_bits of RQ must be 1 to {_MOST_BITS}", num_bits=num_bits)
    if dtype not in _FLOATS:
        raise InvalidInputError(
            "the type must be floating-point", dtype=dtype, expected=list(_FLOATS)
        )
    random = np.random.default_rng(surroundings.random_bits(64))
    signs = random.integers(0, 256, _ROTATION_STEPS * dimension // 8)
    model = {
        "rotate_mat_position": None,
        "fast_rotation_signs": signs.tolist(),
        "rotation_type": "fast",
        "code_dim": dimension,
        "num_bits": num_bits,
        "packed": False,
        "query_estimator": "raw_query",
    }
    return json.dumps(model, separators=(",", ":"))


def transform_vectors(
    dataset: LanceDataset,
    column: str,
    dimension: int,
    num_subvectors: int,
    distance_type: str,
    ivf_centroids: pa.Array,
    pq_codebook: pa.Array,
    dst_uri: str,
    fragments: Sequence[LanceFragment] | None,
    partitions_ds_uri: str | None = None,
    num_bits: int = 8,
) -> None:
    """Write a file with the row id, partition and code of each row of the fragments.

    The partitions are read from a dataset of precomputed partitions, if given.
    """
    assigned = read_assigned_partitions(partitions_ds_uri)
    chosen = None if fragments is None else [each.fragment_id for each in fragments]
    model, codes = _models(
        dimension, num_subvectors, distance_type, ivf_centroids, pq_codebook, num_bits
    )
    with LanceFileWriter(dst_uri) as writer:
        for part in encode_rows(_rows(dataset, column, chosen), model, codes, assigned):
            writer.write_batch(part)


def shuffle_transformed_vectors(
    unsorted_filenames: list[str],
    dir_path: str,
    ivf_centroids: pa.Array,  # noqa: ARG001 - unused; the files contain the partitions
    shuffle_output_root_filename: str | None = "sorted",
) -> list[str]:
    """Sort the rows of files by partition, and return the names of the new files."""
    found = []
    for number, table in enumerate(_tables(unsorted_filenames, dir_path)):
        name = f"{shuffle_output_root_filename}_{number}.lance"
        ordered = table.sort_by([(_PARTITION, "ascending"), ("_rowid", "ascending")])
        with LanceFileWriter(posixpath.join(dir_path, name), ordered.schema) as writer:
            writer.write_batch(ordered)
        found.append(name)
    return found


def load_shuffled_vectors(
    filenames: list[str],
    dir_path: str,
    dataset: LanceDataset,
    column: str,
    ivf_centroids: pa.Array,
    pq_codebook: pa.Array,
    pq_dimension: int,
    num_subvectors: int,
    distance_type: str,
    index_name: str | None = None,
    num_bits: int = 8,
) -> None:
    """Commit an index of the rows in shuffled files."""
    name = index_name or default_name(column)
    rows = pa.concat_tables(_tables(filenames, dir_path))
    model, codes = _models(
        pq_dimension, num_subvectors, distance_type, ivf_centroids, pq_codebook, num_bits
    )
    handle = dataset.handle
    segment = write_encoded(handle.snapshot, column, name, model, codes, rows)
    handle.snapshot = commit_segments(handle.snapshot, name, column, [segment])


def get_ivf_model(dataset: LanceDataset, index_name: str) -> Any:
    """Return the IVF model of an index, an object with `centroids`."""
    return dataset.get_ivf_model(index_name)


def _rows(dataset: LanceDataset, column: str, fragments: Sequence[int] | None) -> IndexedRows:
    return read_vectors(dataset.snapshot, column, fragments)


def _models(
    dimension: int,
    num_sub_vectors: int,
    distance_type: str,
    centroids: Any,
    codebook: Any,
    bits: int,
) -> tuple[Centroids, ProductCodes]:
    metric = METRICS[distance_type]
    book = matrix_of_values(codebook).reshape(
        num_sub_vectors, 1 << bits, dimension // num_sub_vectors
    )
    return Centroids(metric, matrix_of_values(centroids)), ProductCodes(metric, book, bits)


def _vectors(values: Any, dimension: int) -> pa.FixedSizeListArray:
    flat = values.reshape(-1, dimension)
    return to_column(flat, pa.list_(pa.from_numpy_dtype(flat.dtype), dimension))


def _tables(names: list[str], folder: str) -> Iterator[pa.Table]:
    if not isinstance(names, list):
        raise InvalidInputError("filenames must be a list of strings", found=str(type(names)))
    for name in names:
        yield LanceFileReader(posixpath.join(folder, name)).read_all().to_table()

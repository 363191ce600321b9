"""Distributed training and building of vector indices, compatible with pylance.

The steps are:

    train_ivf                      train an IvfModel
    train_pq                       train a PqModel
    transform_vectors              write row ids, partitions and PQ codes of fragments to a file
    shuffle_transformed_vectors    sort these rows by partition
    load_shuffled_vectors          commit an index of the sorted files
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pyarrow as pa

from lancelet.dataset.index.values import IndexConfig
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.index.base import IndexedRows
from lancelet.index.vector.layout import METRICS
from lancelet.index.vector.vectors import (
    NotVectorsError,
    not_vectors_hint,
    values_of,
    vector_type_of,
)
from lancelet.indices.ivf import IvfModel
from lancelet.indices.pq import PqModel
from lancelet.lance import indices as steps
from lancelet.upkeep.indexing.vector_models import read_vectors

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.fragment import LanceFragment

__all__ = ["IndexConfig", "IndicesBuilder"]

PARTITION_COLUMN: Final = "__ivf_part_id"
RESIDUAL_COLUMN: Final = "__residual_vector"
PQ_COLUMN: Final = "__pq_code"
_BITS: Final = 8


class NoSuchColumnError(FieldNotFoundError, KeyError):
    """The table does not have the column."""


class TrainedModels(TypedDict):
    """The models shared by all segments of an IVF_PQ index."""

    ivf_centroids: pa.FixedSizeListArray
    pq_codebook: pa.FixedSizeListArray


class IndicesBuilder:
    """Builds a vector index on a column in separate steps.

    Attributes:
        dataset: The table.
        column: The path of the column, as a list with one element.
        dimension: The number of elements of a vector.
    """

    def __init__(self, dataset: LanceDataset, column: str | list[str]) -> None:
        """Create a builder for a vector column."""
        self.dataset = dataset
        self.column = [column] if isinstance(column, str) else list(column)
        path = self.column[0]
        if path not in dataset.schema.names:
            raise NoSuchColumnError(f"{path} not found in schema")
        data_type = dataset.schema.field(path).type
        vector_type = vector_type_of(data_type)
        if vector_type is None:
            raise NotVectorsError(
                f"Vector column {path} must be FixedSizeListArray, list<FixedSizeList> "
                f"(multivector), or 1-dimensional FixedShapeTensorArray, got {data_type}"
                f"{not_vectors_hint(data_type, path)}"
            )
        self.dimension: int = vector_type.list_size

    def train_ivf(
        self,
        num_partitions: int | None = None,
        *,
        distance_type: str = "l2",
        accelerator: Any = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        fragment_ids: Sequence[int] | None = None,
    ) -> IvfModel:
        """Train IVF centroids on a sample.

        Args:
            num_partitions: The number of partitions; by default the square root of the row count.
            distance_type: `l2`, `cosine`, `dot` or `hamming`.
            accelerator: Ignored. Centroids are trained with matrix products on the CPU.
            sample_rate: The number of rows sampled for each centroid.
            max_iters: The maximum number of iterations.
            fragment_ids: The fragments to sample; all by default.
        """
        del accelerator
        rows = self._rows(fragment_ids)
        if num_partitions is None:
            num_partitions = round(math.sqrt(rows.num_rows))
        _check_rate(sample_rate)
        if num_partitions * sample_rate > rows.num_rows:
            raise InvalidInputError(
                "There are not enough rows in the dataset to create IVF centroids with"
                f" {num_partitions} partitions and a sample rate of {sample_rate}."
                f" {sample_rate * num_partitions} rows needed and there are {rows.num_rows}"
            )
        if not isinstance(distance_type, str) or distance_type.lower() not in METRICS:
            raise InvalidInputError(f"Distance type {distance_type} not supported.")
        centroids = steps.train_ivf_model(
            self.dataset,
            self.column[0],
            self.dimension,
            int(num_partitions),
            distance_type.lower(),
            sample_rate,
            max_iters,
            fragment_ids,
        )
        return IvfModel(centroids, distance_type.lower())

    def train_pq(
        self,
        ivf_model: IvfModel,
        num_subvectors: int | None = None,
        *,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = _BITS,
        fragment_ids: Sequence[int] | None = None,
    ) -> PqModel:
        """Train a PQ codebook on the residuals of a sample.

        Args:
            ivf_model: The IVF centroids.
            num_subvectors: The number of sub-vectors; by default of 16 or 8 elements each.
            sample_rate: The number of rows sampled for each codeword.
            max_iters: The maximum number of iterations.
            num_bits: The number of bits of a PQ code.
            fragment_ids: The fragments to sample; all by default.
        """
        rows = self._rows(fragment_ids)
        sub_vectors = self._num_subvectors(num_subvectors)
        self._verify_pq_sample_rate(rows.num_rows, sample_rate, num_bits)
        codebook = steps.train_pq_model(
            self.dataset,
            self.column[0],
            self.dimension,
            sub_vectors,
            ivf_model.distance_type,
            sample_rate,
            max_iters,
            ivf_model.centroids,
            fragment_ids,
            num_bits,
        )
        return PqModel(sub_vectors, codebook, num_bits=num_bits)

    def prepare_global_ivf_pq(
        self,
        num_partitions: int | None,
        num_subvectors: int | None,
        *,
        distance_type: str = "l2",
        accelerator: Any = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = _BITS,
        fragment_ids: Sequence[int] | None = None,
    ) -> TrainedModels:
        """Train the models shared by separately built segments; see `train_ivf` and `train_pq`."""
        ivf = self.train_ivf(
            num_partitions,
            distance_type=distance_type,
            accelerator=accelerator,
            sample_rate=sample_rate,
            max_iters=max_iters,
            fragment_ids=fragment_ids,
        )
        pq = self.train_pq(
            ivf,
            num_subvectors,
            sample_rate=sample_rate,
            max_iters=max_iters,
            num_bits=num_bits,
            fragment_ids=fragment_ids,
        )
        return {"ivf_centroids": ivf.centroids, "pq_codebook": pq.codebook}

    def assign_ivf_partitions(
        self,
        ivf_model: IvfModel,
        accelerator: Any,
        *,
        output_uri: str | os.PathLike[str] | None = None,
    ) -> str:
        """Write a table with the partition of each row and return its URI.

        Use this to assign partitions on a PyTorch device. Otherwise, `transform_vectors` assigns
        partitions on the CPU.

        Args:
            ivf_model: The IVF centroids.
            accelerator: The PyTorch device that computes the distances.
            output_uri: The URI of the new table; a new temporary folder by default.
        """
        from lancelet.torch.kmeans import KMeans  # noqa: PLC0415 - an extra
        from lancelet.torch.required import require_torch  # noqa: PLC0415 - an extra
        from lancelet.torch.training import compute_partitions  # noqa: PLC0415 - an extra

        torch = require_torch()
        matrix = values_of(ivf_model.centroids).reshape(-1, self.dimension)
        clusters = KMeans(
            ivf_model.num_partitions,
            metric=ivf_model.distance_type,  # type: ignore[arg-type]  # it checks it
            device=accelerator,
            centroids=torch.from_numpy(matrix.copy()).to(accelerator),
        )
        return compute_partitions(
            self.dataset, self.column[0], clusters, dst_dataset_uri=output_uri
        )

    def transform_vectors(
        self,
        ivf: IvfModel,
        pq: PqModel,
        dest_uri: str,
        fragments: Sequence[LanceFragment] | None = None,
        partition_ds_uri: str | None = None,
    ) -> None:
        """Write a file with the row id, partition and PQ code of each row.

        Args:
            ivf: The IVF centroids.
            pq: The PQ codebook.
            dest_uri: The file.
            fragments: The fragments to read; all by default.
            partition_ds_uri: A dataset with the partition of each row, written by
                `assign_ivf_partitions`; rows that it does not contain are skipped. By default,
                partitions are computed.
        """
        if fragments is not None and not fragments:
            raise InvalidInputError("fragments must be a non-empty list or None")
        steps.transform_vectors(
            self.dataset,
            self.column[0],
            self.dimension,
            pq.num_subvectors,
            ivf.distance_type,
            ivf.centroids,
            pq.codebook,
            dest_uri,
            fragments,
            partition_ds_uri,
            pq.num_bits,
        )

    def shuffle_transformed_vectors(
        self,
        unsorted_filenames: list[str],
        dir_path: str,
        ivf: IvfModel,
        shuffle_output_root_filename: str | None = "sorted",
    ) -> list[str]:
        """Sort the rows of transformed files by partition and return the new file names.

        Args:
            unsorted_filenames: The files written by `transform_vectors`.
            dir_path: The folder of the files.
            ivf: Ignored; the files contain the partition of each row.
            shuffle_output_root_filename: The prefix of the new file names.
        """
        return steps.shuffle_transformed_vectors(
            unsorted_filenames, dir_path, ivf.centroids, shuffle_output_root_filename
        )

    def load_shuffled_vectors(
        self,
        filenames: list[str],
        dir_path: str,
        ivf: IvfModel,
        pq: PqModel,
        index_name: str | None = None,
    ) -> None:
        """Commit an index built from sorted files.

        Args:
            filenames: The file names returned by `shuffle_transformed_vectors`.
            dir_path: The folder of the files.
            ivf: The IVF centroids.
            pq: The PQ codebook.
            index_name: The name of the index; by default the column name with the suffix `_idx`.
        """
        steps.load_shuffled_vectors(
            filenames,
            dir_path,
            self.dataset,
            self.column[0],
            ivf.centroids,
            pq.codebook,
            self.dimension,
            pq.num_subvectors,
            ivf.distance_type,
            index_name,
            pq.num_bits,
        )

    def _rows(self, fragment_ids: Sequence[int] | None) -> IndexedRows:
        for fragment_id in fragment_ids or ():
            if self.dataset.get_fragment(fragment_id) is None:
                raise InvalidInputError(f"Fragment id does not exist: {fragment_id}")
        return read_vectors(self.dataset.snapshot, self.column[0], fragment_ids)

    def _verify_pq_sample_rate(self, num_rows: int, sample_rate: int, num_bits: int) -> None:
        """Raise if the table has too few rows for the sample; subclasses may override this."""
        _check_rate(sample_rate)
        needed = sample_rate << num_bits
        if needed > num_rows:
            raise InvalidInputError(
                "There are not enough rows in the dataset to create PQ codebook with a sample"
                f" rate of {sample_rate} and num_bits of {num_bits}.  {needed} rows needed and"
                f" there are {num_rows}"
            )

    def _num_subvectors(self, requested: int | None) -> int:
        if requested is None:
            for size in (16, 8):
                if self.dimension % size == 0:
                    return self.dimension // size
            raise InvalidInputError(
                f"vector dimension {self.dimension} is not divisible by 16 or 8; specify "
                "num_subvectors"
            )
        if not isinstance(requested, int) or not 1 <= requested <= self.dimension:
            raise InvalidInputError(
                "num_subvectors must be an int from 1 to the vector dimension", found=requested
            )
        if self.dimension % requested:
            raise InvalidInputError(
                f"dimension ({self.dimension}) must be divisible by num_subvectors"
                f" ({requested}) without remainder"
            )
        return requested


def _check_rate(sample_rate: int) -> None:
    if not isinstance(sample_rate, int) or sample_rate < 2:
        raise InvalidInputError(f"The sample_rate must be an int greater than 1, got {sample_rate}")

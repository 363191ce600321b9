"""Building a vector index step by step, under pylance's names.

train_ivf                      IvfModel, to be saved
train_pq                       PqModel
transform_vectors              a file of row ids, partitions and codes, per group of fragments
shuffle_transformed_vectors    the same rows, sorted by partition
load_shuffled_vectors          an index of all of them, committed
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
from lancelet.index.vector.vectors import NotVectorsError, values_of, vector_type_of
from lancelet.indices.ivf import IvfModel
from lancelet.indices.pq import PqModel
from lancelet.lance import indices as steps
from lancelet.ops.indexing.vector_models import vectors_of

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.fragment import LanceFragment

__all__ = ["IndexConfig", "IndicesBuilder"]

PARTITION_COLUMN: Final = "__ivf_part_id"
RESIDUAL_COLUMN: Final = "__residual_vector"
PQ_COLUMN: Final = "__pq_code"
_BITS: Final = 8


class NoSuchColumnError(FieldNotFoundError, KeyError):
    """A table has no such column."""


class TrainedModels(TypedDict):
    """What all segments of an index of PQ share."""

    ivf_centroids: pa.FixedSizeListArray
    pq_codebook: pa.FixedSizeListArray


class IndicesBuilder:
    """Builds a vector index on a column step by step.

    Attributes:
        dataset: The table.
        column: The path of the column, in a list.
        dimension: How many elements a vector has.
    """

    def __init__(self, dataset: LanceDataset, column: str | list[str]) -> None:
        """Build an index on a column of vectors."""
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
        """Find centroids of a sample.

        Args:
            num_partitions: How many, by default about the square root of the number of rows.
            distance_type: `l2`, `cosine`, `dot` or `hamming`.
            accelerator: Not needed: centroids are found by matrix products on the CPU.
            sample_rate: How many rows each centroid is found from.
            max_iters: The maximum number of iterations.
            fragment_ids: The fragments to sample, by default all.
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
        """Train the PQ codebook on the residuals of a sample.

        Args:
            ivf_model: The centroids.
            num_subvectors: The number of sub-vectors; by default of 16 or 8 elements each.
            sample_rate: The number of rows sampled for each codeword.
            max_iters: The maximum number of iterations.
            num_bits: How many bits the number of a word has.
            fragment_ids: The fragments to sample, by default all.
        """
        rows = self._rows(fragment_ids)
        pieces = self._pieces(num_subvectors)
        self._verify_pq_sample_rate(rows.num_rows, sample_rate, num_bits)
        codebook = steps.train_pq_model(
            self.dataset,
            self.column[0],
            self.dimension,
            pieces,
            ivf_model.distance_type,
            sample_rate,
            max_iters,
            ivf_model.centroids,
            fragment_ids,
            num_bits,
        )
        return PqModel(pieces, codebook, num_bits=num_bits)

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
        """Train the models that separately built segments share; see `train_ivf` and `train_pq`."""
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
        """Write a table with the partition of each row, and return where it is.

        It is for devices of PyTorch alone; `transform_vectors` assigns rows on the CPU as it goes.

        Args:
            ivf_model: The centroids.
            accelerator: The device of PyTorch that compares vectors with them.
            output_uri: Where to write, by default a new temporary folder.
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
        """Write a file with the id, the partition and the code of each row.

        Args:
            ivf: The centroids.
            pq: The words.
            dest_uri: The file.
            fragments: The fragments to read, by default all.
            partition_ds_uri: A dataset with the partition of each row, as `assign_ivf_partitions`
                writes it; rows that it lacks are left out. By default partitions are found.
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
        """Sort rows of files of a folder by partition, and return the names of new files.

        Args:
            unsorted_filenames: What `transform_vectors` wrote.
            dir_path: The folder.
            ivf: Has no effect: the files say of what partition rows are.
            shuffle_output_root_filename: How the names of new files begin.
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
        """Commit an index of the rows that files have.

        Args:
            filenames: What `shuffle_transformed_vectors` returned.
            dir_path: Their folder.
            ivf: The centroids.
            pq: The words.
            index_name: By default the name of the column with `_idx` behind it.
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
        for each in fragment_ids or ():
            if self.dataset.get_fragment(each) is None:
                raise InvalidInputError(f"Fragment id does not exist: {each}")
        return vectors_of(self.dataset.snapshot, self.column[0], fragment_ids)

    def _verify_pq_sample_rate(self, num_rows: int, sample_rate: int, num_bits: int) -> None:
        """Raise if there are too few rows for a sample; programs replace this to try less."""
        _check_rate(sample_rate)
        needed = sample_rate << num_bits
        if needed > num_rows:
            raise InvalidInputError(
                "There are not enough rows in the dataset to create PQ codebook with a sample"
                f" rate of {sample_rate} and num_bits of {num_bits}.  {needed} rows needed and"
                f" there are {num_rows}"
            )

    def _pieces(self, given: int | None) -> int:
        if given is None:
            for size in (16, 8):
                if self.dimension % size == 0:
                    return self.dimension // size
            raise InvalidInputError(
                f"vector dimension {self.dimension} is not divisible by 16 or 8; say num_subvectors"
            )
        if not isinstance(given, int) or not 1 <= given <= self.dimension:
            raise InvalidInputError(
                "num_subvectors must be an int from 1 to the dimension of the vectors", found=given
            )
        if self.dimension % given:
            raise InvalidInputError(
                f"dimension ({self.dimension}) must be divisible by num_subvectors"
                f" ({given}) without remainder"
            )
        return given


def _check_rate(sample_rate: int) -> None:
    if not isinstance(sample_rate, int) or sample_rate < 2:
        raise InvalidInputError(f"The sample_rate must be an int greater than 1, got {sample_rate}")

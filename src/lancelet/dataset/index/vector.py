"""Methods that build vector indices and return their models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from lancelet import index as kinds
from lancelet import upkeep
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews_dataset
from lancelet.dataset.handle import Handle
from lancelet.dataset.index.values import IvfCentroids
from lancelet.dataset.index.vector_request import VectorIndexArguments, read_assigned_partitions
from lancelet.dataset.show.progress import ProgressOption, by_stages, shown
from lancelet.errors import FieldNotFoundError, InvalidInputError

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset


class NoVectorIndexError(FieldNotFoundError, KeyError):
    """The column has no vector index."""


_FLAT_ROWS_MAX: Final = 1 << 16
"""Up to this number of rows, the default index stores vectors without quantization."""


class VectorIndexMethods:
    """Methods that build vector indices."""

    _handle: Handle

    @previews_dataset
    @checks_types
    def create_index(
        self,
        /,
        column: str | Sequence[str],
        index_type: str | None = None,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: float | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: float | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        shuffle_partition_batches: int | None = None,
        shuffle_partition_concurrency: int | None = None,
        ivf_centroids_file: str | None = None,
        precomputed_partition_dataset: str | None = None,
        storage_options: Any = None,
        filter_nan: bool = True,
        train: bool = True,
        fragment_ids: Sequence[int] | None = None,
        index_uuid: str | None = None,
        *,
        target_partition_size: float | None = None,
        streaming_sample_rate: int | None = None,
        streaming_coreset_rate: int | None = None,
        streaming_refine_passes: int | None = None,
        skip_transpose: bool = False,
        rabitq_model: str | None = None,
        progress_callback: Callable[..., None] | None = None,
        progress: ProgressOption = None,
        dry_run: bool = False,
        **parameters: Any,
    ) -> LanceDataset | ChangeReport:
        """Build a vector index. All parameters have defaults.

        Null vectors and vectors with NaN or infinity are not indexed.

        Args:
            column: The path of the vector column.
            index_type: `IVF_FLAT`, `IVF_PQ`, `IVF_SQ`, `IVF_RQ`, `IVF_HNSW_FLAT`, `IVF_HNSW_PQ` or
                `IVF_HNSW_SQ`; by default `IVF_FLAT` for tables of up to 65,536 rows, which stores
                exact vectors, and `IVF_PQ` for larger ones.
            name: The name; by default the column path with the suffix `_idx`.
            metric: `L2`, `cosine`, `dot`, or `hamming` for binary vectors.
            replace: Whether to replace an index of this name.
            num_partitions: The number of IVF partitions; by default derived from the number of
                rows.
            ivf_centroids: Pre-trained centroids.
            pq_codebook: A pre-trained PQ codebook.
            num_sub_vectors: The number of PQ sub-vectors; by default derived from the dimension.
            accelerator: `cuda` or `mps` trains on this device; by default, and without
                `num_partitions`, training uses the CPU.
            index_cache_size: Has no effect: partitions are cached by their size.
            shuffle_partition_batches: Has no effect: rows are partitioned during reading.
            shuffle_partition_concurrency: Has no effect: rows are partitioned during reading.
            ivf_centroids_file: A `.npy` file with centroids.
            precomputed_partition_dataset: A dataset with the partition of each row, as written by
                `IndicesBuilder.assign_ivf_partitions`; missing rows are not indexed.
            storage_options: Storage options of that dataset.
            filter_nan: Has no effect: non-finite vectors are never indexed.
            train: Whether to index the existing rows now instead of in `optimize_indices`.
            fragment_ids: The fragments to index, by default all.
            index_uuid: The id of the segment, by default a new one.
            target_partition_size: The number of rows per partition.
            streaming_sample_rate: Has no effect: training always streams a sample.
            streaming_coreset_rate: Has no effect.
            streaming_refine_passes: Has no effect.
            skip_transpose: Whether to store PQ codes row by row.
            rabitq_model: The RaBitQ rotation and bit width as JSON, shared by segments.
            progress_callback: Called with the phase, the completed work, and the total.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.
            parameters: `num_bits`, `max_iters`, `sample_rate`, and for graphs `m`,
                `ef_construction` and `max_level`.

        Returns:
            The dataset; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If the column has no vectors, or a parameter is invalid.
            AlreadyExistsError: If the name exists and `replace` is False.
            CommitConflictError: If a concurrent commit changed the same index.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            dataset.to_table(nearest={"column": "vector", "q": [0.1, 0.2, 0.3, 0.4], "k": 3})
            ```
        """
        del shuffle_partition_batches, shuffle_partition_concurrency, filter_nan  # no effect
        del streaming_sample_rate, streaming_coreset_rate, streaming_refine_passes
        if index_cache_size is not None:
            warnings.warn(
                "The 'index_cache_size' parameter of create_index is ignored: the index cache is "
                "limited in bytes",
                DeprecationWarning,
                stacklevel=2,
            )
        if index_type is None:
            is_small = self._handle.snapshot.num_rows <= _FLAT_ROWS_MAX
            index_type = "IVF_FLAT" if is_small else "IVF_PQ"
        arguments = VectorIndexArguments(
            column,
            index_type,
            name,
            metric,
            replace=replace,
            ivf_centroids=ivf_centroids,
            ivf_centroids_file=ivf_centroids_file,
            pq_codebook=pq_codebook,
            rabitq_model=rabitq_model,
            train=train,
            fragment_ids=fragment_ids,
            index_uuid=index_uuid,
            skip_transpose=skip_transpose,
            assigned=read_assigned_partitions(precomputed_partition_dataset, storage_options),
            progress_callback=progress_callback,
            values={
                **parameters,
                "num_partitions": num_partitions,
                "num_sub_vectors": num_sub_vectors,
                "target_partition_size": target_partition_size,
            },
        ).trained_on(accelerator, cast("LanceDataset", self))
        handle = self._handle
        with shown(progress) as called:
            callback = progress_callback or called
            if callback is not None:
                arguments = replace_fields(arguments, progress_callback=by_stages(callback))
            request = arguments.request(handle.snapshot.schema)
            if dry_run:
                return upkeep.indexing.staged.report_vector_index(handle.snapshot, request)
            handle.snapshot = upkeep.indexing.vectors.create_vector_index(handle.snapshot, request)
        return cast("LanceDataset", self)

    @checks_types
    def get_ivf_model(self, index_name: str) -> IvfCentroids:
        """Return the IVF model of a vector index.

        Args:
            index_name: The name of the index.

        Returns:
            An object with the `centroids`.

        Raises:
            NotFoundError: If the vector index does not exist.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            len(dataset.get_ivf_model("vector_idx").centroids)  # 2
            ```
        """
        model = upkeep.indexing.vector_models.model_of_index(self._handle.snapshot, index_name)
        element = pa.from_numpy_dtype(model.centroids.dtype)
        vectors = kinds.vector.writer.to_column(model.centroids, pa.list_(element, model.dimension))
        return IvfCentroids(vectors)

    @checks_types
    def centroids(
        self, *, index_name: str | None = None, column: str | None = None
    ) -> pa.FixedSizeListArray:
        """Return the IVF centroids of a vector index.

        Args:
            index_name: The name of the index.
            column: The column, as an alternative to the name; its first vector index is used.

        Returns:
            One vector per partition.

        Raises:
            NotFoundError: If the vector index does not exist.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            dataset.centroids(column="vector")
            ```
        """
        if index_name is None:
            if column is None:
                raise InvalidInputError("Must provide 'index_name' or 'column'.")
            index_name = upkeep.indexing.vector_models.find_index_name(
                self._handle.snapshot, column
            )
            if index_name is None:
                raise NoVectorIndexError(f"No IVF index for column '{column}'")
        return self.get_ivf_model(index_name).centroids

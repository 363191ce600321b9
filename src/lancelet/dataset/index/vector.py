"""The methods of a dataset that build vector indices, and show their models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lancelet import index as kinds
from lancelet import ops
from lancelet.dataset.arguments import checks_kinds, previews_dataset
from lancelet.dataset.handle import Handle
from lancelet.dataset.index.values import IvfCentroids
from lancelet.dataset.index.vector_request import VectorIndexArguments
from lancelet.dataset.show.progress import ProgressOption, by_stages, shown
from lancelet.errors import FieldNotFoundError, InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops.dry_run import ChangeReport


class NoVectorIndexError(FieldNotFoundError, KeyError):
    """A column has no vector index."""


class VectorIndexMethods:
    """Builds vector indices."""

    _handle: Handle

    @previews_dataset
    @checks_kinds
    def create_index(
        self,
        /,
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
        target_partition_size: int | None = None,
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

        Rows without a vector, or with NaN or infinity in it, are not indexed.

        Args:
            column: The path of the vector column.
            index_type: `IVF_FLAT`, `IVF_PQ`, `IVF_SQ`, `IVF_RQ`, `IVF_HNSW_FLAT`, `IVF_HNSW_PQ` or
                `IVF_HNSW_SQ`.
            name: The name; by default the path with `_idx` appended.
            metric: `L2`, `cosine`, `dot`, or `hamming` for bytes.
            replace: Whether to replace an index of that name.
            num_partitions: The number of IVF partitions; by default derived from the number of
                rows.
            ivf_centroids: Centroids to use instead of training them.
            pq_codebook: PQ codebook to use instead of training it.
            num_sub_vectors: The number of sub-vectors of PQ; by default derived from the dimension.
            accelerator: Train on `cuda` or `mps`; by default, and without `num_partitions`, on the
                CPU.
            index_cache_size: Has no effect: partitions are cached by their size.
            shuffle_partition_batches: Has no effect: rows are partitioned as they are read.
            shuffle_partition_concurrency: Has no effect, for the same reason.
            ivf_centroids_file: A `.npy` file with centroids.
            precomputed_partition_dataset: A dataset with the partition of each row, as
                `IndicesBuilder.assign_ivf_partitions` writes it; rows that it lacks are left out.
            storage_options: Those of that dataset.
            filter_nan: Has no effect: what is not finite is always left out.
            train: Whether to index the rows now, or leave that to `optimize_indices`.
            fragment_ids: The fragments to index, by default all.
            index_uuid: The id of the segment, by default a new one.
            target_partition_size: The number of rows per partition.
            streaming_sample_rate: Has no effect: a sample is always streamed.
            streaming_coreset_rate: Has no effect.
            streaming_refine_passes: Has no effect.
            skip_transpose: Whether to store PQ codes row by row.
            rabitq_model: The RaBitQ rotation and its bits as JSON, shared by segments.
            progress_callback: Called with the phase, what is done of it, and its size.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.
            parameters: `num_bits`, `max_iters`, `sample_rate`, and for graphs `m`,
                `ef_construction` and `max_level`.

        Returns:
            The dataset; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If there is no such column.
            InvalidInputError: If the column has no vectors, or a parameter does not fit.
            AlreadyExistsError: If the name is taken and `replace` is False.
            CommitConflictError: If a concurrent commit changed the same index first.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            dataset.to_table(nearest={"column": "vector", "q": [0.1, 0.2, 0.3, 0.4], "k": 3})
            ```
        """
        if index_cache_size is not None:
            warnings.warn(
                "The 'index_cache_size' parameter of create_index is ignored: what is kept of an "
                "index is bounded by bytes",
                DeprecationWarning,
                stacklevel=2,
            )
        arguments = VectorIndexArguments.of(locals(), cast("LanceDataset", self))
        handle = self._handle
        with shown(progress) as called:
            callback = progress_callback or called
            if callback is not None:
                arguments = replace_fields(arguments, progress_callback=by_stages(callback))
            request = arguments.request(handle.snapshot.schema)
            if dry_run:
                return ops.indexing.staged.report_vector_index(handle.snapshot, request)
            handle.snapshot = ops.indexing.vectors.create_vector_index(handle.snapshot, request)
        return cast("LanceDataset", self)

    @checks_kinds
    def get_ivf_model(self, index_name: str) -> IvfCentroids:
        """Return the IVF model of a vector index.

        Args:
            index_name: The name of the index.

        Returns:
            An object with the `centroids`.

        Raises:
            NotFoundError: If there is no vector index of that name.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            len(dataset.get_ivf_model("vector_idx").centroids)  # 2
            ```
        """
        model = ops.indexing.vector_models.model_of_index(self._handle.snapshot, index_name)
        element = pa.from_numpy_dtype(model.centroids.dtype)
        vectors = kinds.vector.writer.to_column(model.centroids, pa.list_(element, model.dimension))
        return IvfCentroids(vectors)

    @checks_kinds
    def centroids(
        self, *, index_name: str | None = None, column: str | None = None
    ) -> pa.FixedSizeListArray:
        """Return the IVF centroids of a vector index.

        Args:
            index_name: The name of the index.
            column: Or the column; the first index on it is used.

        Returns:
            One vector per partition.

        Raises:
            NotFoundError: If there is no such vector index.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            dataset.centroids(column="vector")
            ```
        """
        if index_name is None:
            if column is None:
                raise InvalidInputError("Must provide 'index_name' or 'column'.")
            index_name = ops.indexing.vector_models.find_index_name(self._handle.snapshot, column)
            if index_name is None:
                raise NoVectorIndexError(f"No IVF index for column '{column}'")
        return self.get_ivf_model(index_name).centroids

"""Methods for distributed index builds: write segments, merge them, commit them.

For example, with two workers:

    worker 0     create_index_uncommitted(fragment_ids=[0, 1])    segment 5f..
    worker 1     create_index_uncommitted(fragment_ids=[2, 3])    segment a3..
    driver       commit_existing_index_segments(name, column, [5f.., a3..]), optionally merged
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from lancelet import index as kinds
from lancelet import upkeep
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews_dataset
from lancelet.dataset.handle import Handle
from lancelet.dataset.index.scalar import index_request, parse_uuid, with_scope
from lancelet.dataset.index.values import Index, index_from_user, index_to_user
from lancelet.dataset.index.vector_request import VectorIndexArguments, read_assigned_partitions
from lancelet.dataset.show.progress import IndexProgress, by_stages
from lancelet.errors import InvalidInputError
from lancelet.table.commit import check_table_exists

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset

_OWN_IDS: Final = frozenset({"BTREE", "LABEL_LIST", "NGRAM"})
"""Index kinds that do not accept `index_uuid`, as in pylance."""


class IndexSegmentMethods:
    """Methods that build an index in segments."""

    _handle: Handle

    @checks_types
    def create_index_uncommitted(
        self,
        column: str | Sequence[str],
        index_type: Any,
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
        **parameters: Any,
    ) -> Index:
        """Write an index segment without committing it.

        Args:
            column: The path of the column.
            index_type: The kind of index, scalar, text or vector.
            name: The name; by default the column path with the suffix `_idx`.
            metric: The distance metric.
            replace: Has no effect: an index is replaced when segments are committed.
            num_partitions: The number of IVF partitions.
            ivf_centroids: Centroids shared by all segments, which makes the segments mergeable.
            pq_codebook: PQ codebook shared by all segments.
            num_sub_vectors: The number of PQ sub-vectors.
            accelerator: The device to train centroids and codebooks on, unless they are given; see
                `create_index`.
            index_cache_size: Has no effect: partitions are cached by their size.
            shuffle_partition_batches: Has no effect: rows are partitioned during reading.
            shuffle_partition_concurrency: Has no effect: rows are partitioned during reading.
            ivf_centroids_file: A `.npy` file with centroids.
            precomputed_partition_dataset: A dataset with the partition of each row.
            storage_options: Storage options of that dataset.
            filter_nan: Has no effect: non-finite vectors are never indexed.
            train: Whether to index the rows now.
            fragment_ids: The fragments to index.
            index_uuid: The id of the segment, by default a new one. Not supported for BTREE,
                LABEL_LIST and NGRAM.
            target_partition_size: The number of rows per partition.
            streaming_sample_rate: Has no effect: training always streams a sample.
            streaming_coreset_rate: Has no effect.
            streaming_refine_passes: Has no effect.
            skip_transpose: Whether to store PQ codes row by row.
            rabitq_model: The RaBitQ rotation shared by all segments.
            progress_callback: Called with the phase, the completed work, and the total.
            parameters: Further parameters of the index kind; see `create_index` and
                `create_scalar_index`.

        Returns:
            The segment, for `commit_existing_index_segments`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            segments = [
                dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[fragment.fragment_id])
                for fragment in dataset.get_fragments()
            ]
            dataset.commit_existing_index_segments("id_idx", "id", segments)
            ```
        """
        del shuffle_partition_batches, shuffle_partition_concurrency, filter_nan  # no effect
        del streaming_sample_rate, streaming_coreset_rate, streaming_refine_passes, index_cache_size
        if fragment_ids is None:
            raise InvalidInputError(
                "create_index_uncommitted requires fragment_ids for distributed index build"
            )
        snapshot = self._handle.snapshot
        check_table_exists(snapshot)
        if str(index_type).upper() not in kinds.vector.quantizers.registry.KINDS:
            request = index_request(column, index_type, name, parameters)
            if index_uuid is not None and request.kind.upper() in _OWN_IDS:
                raise InvalidInputError(
                    f"index_uuid is no longer accepted for segments of {request.kind.upper()}: "
                    "each segment gets a unique id, which is part of the returned metadata"
                )
            scoped = with_scope(request, replace, train, fragment_ids, index_uuid)
            return index_to_user(upkeep.indexing.build.build_segment(snapshot, scoped))
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
        built = upkeep.indexing.vectors.build_vector_segment(
            snapshot, arguments.request(snapshot.schema)
        )
        return index_to_user(built)

    def merge_existing_index_segments(self, segments: Sequence[Index]) -> Index:
        """Merge uncommitted segments into one.

        Args:
            segments: Segments of one index.

        Returns:
            The merged segment, uncommitted.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            segments = [
                dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[fragment.fragment_id])
                for fragment in dataset.get_fragments()
            ]
            merged = dataset.merge_existing_index_segments(segments)
            dataset.commit_existing_index_segments("id_idx", "id", [merged])
            ```
        """
        stored = [index_from_user(segment) for segment in segments]
        check_table_exists(self._handle.snapshot)
        return index_to_user(upkeep.indexing.optimize.merge_segments(self._handle.snapshot, stored))

    def merge_index_metadata(
        self,
        index_uuid: str,
        index_type: str,
        batch_readhead: int | None = None,  # noqa: ARG002 - spelled as in pylance
        progress_callback: Callable[[IndexProgress], None] | None = None,
    ) -> None:
        """Merge the parts of a full-text index that `create_scalar_index` wrote under one id.

        The result is not committed; use `LanceOperation.CreateIndex` for that.

        Args:
            index_uuid: The common id of the parts.
            index_type: The index kind, which must be INVERTED.
            batch_readhead: Has no effect: parts are read sequentially.
            progress_callback: Called with an `IndexProgress`.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            import uuid

            shared = str(uuid.uuid4())
            for fragment_id in dataset.fragment_ids():
                dataset.create_scalar_index(
                    "text", "INVERTED", fragment_ids=[fragment_id], index_uuid=shared
                )
            dataset.merge_index_metadata(shared, "INVERTED")
            ```
        """
        progress = kinds.base.silent if progress_callback is None else by_stages(progress_callback)
        upkeep.indexing.staged.merge_staged(
            self._handle.snapshot, index_type, parse_uuid(index_uuid), progress
        )

    @previews_dataset
    def commit_existing_index_segments(
        self,
        index_name: str,
        column: str,
        segments: Sequence[Index],
        *,
        dry_run: bool = False,
    ) -> LanceDataset | ChangeReport:
        """Commit segments as an index, replacing an index of the same name.

        Args:
            index_name: The name of the index.
            column: The path of the column.
            segments: The segments.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The dataset; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            segment = dataset.create_index_uncommitted("id", "BTREE", fragment_ids=[0, 1])
            dataset.commit_existing_index_segments("id_idx", "id", [segment])
            ```
        """
        stored = [index_from_user(segment) for segment in segments]
        report = self._handle.change(
            lambda now: upkeep.indexing.build.commit_segments(now, index_name, column, stored),
            dry_run=dry_run,
        )
        return cast("LanceDataset", self) if report is None else report

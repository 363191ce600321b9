"""Build the indices of the base table for flushed tables, so that searches use both.

    base              flushed table
    BTREE             BTREE
    INVERTED          INVERTED, with the same tokenizer
    IVF_..            IVF_HNSW_SQ with one partition and the same metric; IVF_HNSW_FLAT for hamming

The only version of a flushed table contains the indices. Index types that other implementations do
not build for flushed rows are not built; searches scan the rows instead. Graph parameters are
options of the writer:

    hnsw.by_vector.num_edges = 8
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from lancelet.errors import IndexNotFoundError, InvalidInputError, UnsupportedError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.inverted.kind import Inverted
from lancelet.index.kernels import Metric
from lancelet.index.scalar.btree.kind import BTree
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.train import IvfRequest
from lancelet.memwal.state import MemWalState
from lancelet.scan.indexing.segments import TableSegment, table_segment
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import IndexRequest, build_segment
from lancelet.upkeep.indexing.vectors import VectorIndexRequest, build_vector_segment
from lancelet.values import dataclass

GRAPH_DEFAULTS: Final[Mapping[str, int]] = {
    "num_edges": 16,
    "ef_construction": 150,
    "max_level": 7,
}
"""The default graph parameters for flushed rows."""
_PREFIX: Final = "hnsw"


class MaintainedIndexError(IndexNotFoundError, OSError):
    """An index to maintain does not exist."""


class UnmaintainedKindError(UnsupportedError, OSError):
    """Shards do not support this index type."""


class GraphSettingError(InvalidInputError):
    """The graph parameter does not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class MaintainedIndex:
    """An index that flushed tables share with the base table, with its graph parameters."""

    segment: TableSegment
    column: str
    graph: Mapping[str, int]

    def build(self, flushed: Snapshot) -> IndexMetadata:
        """Write the index of a flushed table before the table is committed."""
        like, name = self.segment, self.segment.metadata.name
        if like.kind is not IVF:
            details = like.metadata.details
            parameters = like.kind.infer_parameters(b"" if details is None else details.value, None)
            request = IndexRequest(self.column, like.kind.name, name, parameters=parameters.values)
            return build_segment(flushed, request)
        metric = _metric_of(like)
        graph = IvfRequest(
            "IVF_HNSW_FLAT" if metric is Metric.HAMMING else "IVF_HNSW_SQ",
            metric,
            partitions=1,
            m=self.graph["num_edges"],
            ef_construction=self.graph["ef_construction"],
            max_level=self.graph["max_level"],
        )
        return build_vector_segment(flushed, VectorIndexRequest(self.column, graph, name))


def check_maintained(base: Snapshot, names: Iterable[str]) -> None:
    """Raise if shards cannot maintain the named indices."""
    for name in names:
        segment = _segment(base, name)
        if segment is None or not _is_maintained(segment):
            raise UnmaintainedKindError(
                "shards do not support this kind of index; omit it to index the base table only",
                name=name,
                kind=None if segment is None else segment.kind.name,
                expected=[BTree().name, Inverted().name, IVF.name],
            )


def maintained_indices(
    base: Snapshot, state: MemWalState, config: Mapping[str, int | bool]
) -> tuple[MaintainedIndex, ...]:
    """Return the indices for flushed tables that still exist in the base table."""
    every = sorted(
        {
            index.name
            for index in base.indices.indices
            if not (index.is_system or index.missing_fields(base.schema.by_id))
        }
    )
    is_chosen = bool(state.maintained_indexes) or state.maintains_all is False
    found = []
    for name in state.maintained_indexes if is_chosen else every:
        segment = _segment(base, name) if name in every else None
        if segment is not None and _is_maintained(segment):
            column = base.schema.path_of(segment.metadata.fields[0])
            graph = {
                key: int(config.get(f"{_PREFIX}.{name}.{key}", default))
                for key, default in GRAPH_DEFAULTS.items()
            }
            found.append(MaintainedIndex(segment, column, graph))
    return tuple(found)


def graph_settings(by_index: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """Return the graph parameters as options of a writer, including defaults.

    >>> graph_settings({"a": {"num_edges": 8}})["hnsw.a.num_edges"]
    8
    """
    found: dict[str, int] = {}
    for name, own in (by_index or {}).items():
        for key, value in own.items():
            if key not in GRAPH_DEFAULTS:
                raise GraphSettingError(
                    f"unknown HNSW build param {key!r} for index {name!r}",
                    expected=sorted(GRAPH_DEFAULTS),
                )
            if value < 1:
                raise GraphSettingError(f"{key} must be greater than 0", index=name, found=value)
        for key, value in {**GRAPH_DEFAULTS, **own}.items():
            found[f"{_PREFIX}.{name}.{key}"] = value
    return found


def _segment(base: Snapshot, name: str) -> TableSegment | None:
    """Return the first segment of an index, or None if its type is not supported."""
    listed = [index for index in base.indices.indices if index.name == name]
    if not listed:
        raise MaintainedIndexError(
            f"Index '{name}' from maintained_indexes not found on dataset",
            available=sorted({index.name for index in base.indices.indices}),
        )
    return table_segment(base, listed[0])


def _is_maintained(segment: TableSegment) -> bool:
    if segment.kind is not IVF:
        return isinstance(segment.kind, BTree | Inverted)
    field = segment.snapshot.schema.field_by_id(segment.metadata.fields[0])
    vector = field.arrow_type
    return bool(pa.types.is_fixed_size_list(vector) and pa.types.is_float32(vector.value_type))


def _metric_of(segment: TableSegment) -> Metric:
    """Return the metric of a vector index, from its files if it has any."""
    metadata = segment.metadata
    if not metadata.fragment_bitmap:
        return IvfDetails.parse(b"" if metadata.details is None else metadata.details.value).metric
    opened = segment.open()
    assert isinstance(opened, IvfSegment), "it is of vectors"
    return opened.model.metric

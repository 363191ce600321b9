"""Build vector indices as one segment and one commit."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from pyroaring import FrozenBitMap

from lancelet import surroundings
from lancelet.change.publish import publish
from lancelet.errors import FieldNotFoundError, InvalidInputError, similar_names
from lancelet.format.field import Field
from lancelet.format.index_metadata import AnyDetails, IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.index.base import Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.kind import IVF, RQ_VERSION
from lancelet.index.vector.legacy_file import NAME as LEGACY_INDEX_NAME
from lancelet.index.vector.legacy_file import Origin
from lancelet.index.vector.quantizers.registry import quantizer_name
from lancelet.index.vector.train import IvfRequest
from lancelet.table.commit import check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import (
    UnknownColumnError,
    default_name,
    new_folder,
    replaced_segments_of_field,
)
from lancelet.upkeep.indexing.rows import rows_to_index
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class VectorIndexRequest:
    """The parameters of a new vector index; common attributes are those of `IndexRequest`.

    `in_one_file` selects the legacy layout, which only IVF_PQ supports.
    """

    column: str
    ivf: IvfRequest
    name: str | None = None
    replaces: bool = False
    is_trained: bool = True
    fragments: tuple[int, ...] | None = None
    uuid: uuid.UUID | None = None
    in_one_file: bool = False


def create_vector_index(snapshot: Snapshot, request: VectorIndexRequest) -> Snapshot:
    """Build an index and commit it, replacing an index with the same name."""
    check_table_exists(snapshot)
    name = request.name or default_name(request.column)
    replaced = replaced_segments_of_field(
        snapshot, name, _leaf(snapshot, request.column), replaces=request.replaces
    )
    return publish(snapshot, CreateIndex((build_vector_segment(snapshot, request),), replaced))


def build_vector_segment(snapshot: Snapshot, request: VectorIndexRequest) -> IndexMetadata:
    """Write the files of an uncommitted segment."""
    leaf = _leaf(snapshot, request.column)
    IVF.check_type(leaf.arrow_type, request.column)
    fragment_ids: list[int] = snapshot.fragments.ids.tolist()
    covered = fragment_ids if request.fragments is None else sorted(set(request.fragments))
    unknown = sorted(set(covered) - set(fragment_ids))
    if unknown:
        raise InvalidInputError("the table does not have these fragments", fragments=unknown[:10])
    segment_id = request.uuid or surroundings.new_uuid()
    folder = new_folder(snapshot, segment_id)
    name = request.name or default_name(request.column)
    by_address = not snapshot.manifest.uses_stable_row_ids
    rows = rows_to_index(snapshot, _path(snapshot, leaf), covered, by_address=by_address)
    if not request.is_trained or not rows.num_rows:
        details = request.ivf.untrained_details(leaf.arrow_type)
        return _metadata(snapshot, folder, segment_id, name, leaf, details.render(), ())
    ivf = request.ivf
    if request.in_one_file and ivf.name == LEGACY_INDEX_NAME:
        ivf = replace(ivf, origin=Origin(name, (request.column,), snapshot.version))
    written = IVF.train(rows, folder, Parameters({"request": ivf}))
    return _metadata(snapshot, folder, segment_id, name, leaf, written, covered)


def _leaf(snapshot: Snapshot, column: str) -> Field:
    try:
        return snapshot.schema.fields_on_path(column)[-1]
    except FieldNotFoundError as error:
        raise UnknownColumnError(
            f"{column} not found in schema{similar_names(column, snapshot.schema.names)}",
            **error.facts,
        ) from error


def _path(snapshot: Snapshot, leaf: Field) -> tuple[str, ...]:
    fields = snapshot.schema.fields_on_path(snapshot.schema.path_of(leaf.id))
    return tuple(field.name for field in fields)


def _metadata(
    snapshot: Snapshot,
    folder: SegmentFolder,
    segment_id: uuid.UUID,
    name: str,
    leaf: Field,
    details: bytes,
    covered: Sequence[int],
) -> IndexMetadata:
    kind = IvfDetails.parse(details).name or ""
    return IndexMetadata(
        uuid=segment_id,
        name=name,
        fields=(int(leaf.id),),
        dataset_version=snapshot.version,
        fragment_bitmap=FrozenBitMap(covered),
        details=AnyDetails(IVF.type_url, details),
        index_version=RQ_VERSION if quantizer_name(kind) == "RQ" else 1,
        created_at=surroundings.time_ns() // 1_000_000,
        files=tuple(folder.written),
    )

"""JSON representation of fragments, compatible with the reference.

{"id": 0, "files": [{"path": .., "fields": [0], ..}], "physical_rows": 20,
 "deletion_file": {"read_version": 4, "id": 9, "file_type": "array", ..},
 "row_id_meta": {"Inline": [10, 4, ..]}, "created_at_version_meta": {"inline": [..]}, ..}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import (
    DataFile,
    DataOverlay,
    DeletionFile,
    DeletionFileType,
    External,
    Fragment,
    FragmentId,
    Inline,
    Spilled,
    StoredSequence,
)
from lancelet.format.roaring import parse_bitmap, render_bitmap, to_bitmap, to_numbers

_FILE_TYPES: Final = {
    DeletionFileType.ARROW_ARRAY: "array",
    DeletionFileType.BITMAP: "bitmap",
}
_BY_FILE_TYPE: Final = {name: file_type for file_type, name in _FILE_TYPES.items()}


class FragmentFormError(InvalidInputError, KeyError):
    """A JSON object is not a valid fragment."""


def fragment_to_json(fragment: Fragment) -> dict[str, Any]:
    """Convert a fragment to JSON."""
    deletion = fragment.deletion_file
    return {
        "id": fragment.id,
        "files": [data_file_to_json(file) for file in fragment.files],
        "overlays": [overlay_to_json(overlay) for overlay in fragment.overlays],
        "physical_rows": fragment.physical_rows,
        "deletion_file": None if deletion is None else deletion_file_to_json(deletion),
        "row_id_meta": row_ids_to_json(fragment.row_ids),
        "created_at_version_meta": versions_to_json(fragment.created_at_versions),
        "last_updated_at_version_meta": versions_to_json(fragment.last_updated_at_versions),
    }


def fragment_from_json(form: Mapping[str, Any]) -> Fragment:
    """Convert JSON to a fragment."""
    try:
        deletion = form.get("deletion_file")
        return Fragment(
            id=FragmentId(form["id"]),
            files=tuple(map(data_file_from_json, form["files"])),
            physical_rows=form["physical_rows"],
            deletion_file=None if deletion is None else deletion_file_from_json(deletion),
            row_ids=sequence_from_json(form.get("row_id_meta")),
            last_updated_at_versions=sequence_from_json(form.get("last_updated_at_version_meta")),
            created_at_versions=sequence_from_json(form.get("created_at_version_meta")),
            overlays=tuple(map(overlay_from_json, form.get("overlays") or ())),
        )
    except KeyError as error:
        raise FragmentFormError(
            "a fragment in JSON lacks an entry, or an entry has an unknown value",
            entry=error.args[0],
        ) from error


def data_file_to_json(file: DataFile) -> dict[str, Any]:
    """Convert a data file entry to JSON."""
    return {
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.major_version,
        "file_minor_version": file.minor_version,
        "file_size_bytes": file.size_bytes or None,
        "base_id": file.base_id,
        "path": file.path,
    }


def data_file_from_json(form: Mapping[str, Any]) -> DataFile:
    """Convert JSON to a data file entry."""
    return DataFile(
        path=form["path"],
        fields=tuple(form["fields"]),
        column_indices=tuple(form.get("column_indices") or ()),
        major_version=form.get("file_major_version", 0),
        minor_version=form.get("file_minor_version", 0),
        size_bytes=form.get("file_size_bytes") or 0,
        base_id=form.get("base_id"),
    )


def deletion_file_to_json(file: DeletionFile) -> dict[str, Any]:
    """Convert a deletion file entry to JSON."""
    return {
        "read_version": file.read_version,
        "id": file.id,
        "file_type": _FILE_TYPES[file.file_type],
        "num_deleted_rows": file.num_deleted_rows,
        "base_id": file.base_id,
    }


def deletion_file_from_json(form: Mapping[str, Any]) -> DeletionFile:
    """Convert JSON to a deletion file entry."""
    return DeletionFile(
        file_type=_BY_FILE_TYPE[form["file_type"]],
        read_version=form["read_version"],
        id=form["id"],
        num_deleted_rows=form.get("num_deleted_rows") or 0,
        base_id=form.get("base_id"),
    )


def row_ids_to_json(sequence: StoredSequence | None) -> dict[str, Any] | str | None:
    """Convert the storage of row ids to JSON."""
    match sequence:
        case None:
            return None
        case Inline(data):
            return {"Inline": list(data)}
        case External(path, offset, size):
            return {"External": {"path": path, "offset": offset, "size": size}}
        case Spilled():
            return "Column"


def versions_to_json(sequence: StoredSequence | None) -> dict[str, Any] | None:
    """Convert the storage of row versions to JSON."""
    match sequence:
        case None:
            return None
        case Inline(data):
            return {"inline": list(data)}
        case External(path, offset, size):
            return {"external": {"path": path, "offset": offset, "size": size}}
        case Spilled():
            return {"column": {}}


def sequence_from_json(form: Mapping[str, Any] | str | None) -> StoredSequence | None:
    """Convert JSON of row ids or row versions to their storage.

    >>> sequence_from_json({"Inline": [65, 66]})
    Inline(data=b'AB')
    """
    if form is None:
        return None
    if isinstance(form, str):
        form = {form: None}
    for kind, value in form.items():
        match kind.lower():
            case "inline":
                return Inline(bytes(value))
            case "external":
                return External(value["path"], value["offset"], value["size"])
            case "column":
                return Spilled()
    raise InvalidInputError(
        "unknown sequence storage; expected inline, external or column", found=list(form)
    )


def overlay_to_json(overlay: DataOverlay) -> dict[str, Any]:
    """Convert an overlay to JSON; its coverage becomes lists of row offsets."""
    coverage = overlay.coverage
    offsets = (
        [_to_offsets(part) for part in coverage]
        if isinstance(coverage, tuple)
        else _to_offsets(coverage)
    )
    return {
        "data_file": data_file_to_json(overlay.data_file),
        "offsets": offsets,
        "committed_version": overlay.committed_version,
    }


def overlay_from_json(form: Mapping[str, Any]) -> DataOverlay:
    """Convert JSON to an overlay."""
    offsets = form["offsets"]
    is_per_field = bool(offsets) and not isinstance(offsets[0], int)
    coverage = tuple(map(_to_coverage, offsets)) if is_per_field else _to_coverage(offsets)
    return DataOverlay(
        data_file_from_json(form["data_file"]), coverage, form.get("committed_version") or 0
    )


def _to_offsets(coverage: bytes | None) -> list[int]:
    return [] if coverage is None else to_numbers(parse_bitmap(coverage)).tolist()


def _to_coverage(offsets: list[int]) -> bytes:
    return render_bitmap(to_bitmap(np.array(offsets, np.uint32)))

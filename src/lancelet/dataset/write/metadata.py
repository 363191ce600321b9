"""Metadata of fragments and files with the API of pylance, and its JSON form."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lancelet.dataset.write.external_files import describe_file
from lancelet.errors import InvalidInputError
from lancelet.format import fragment as stored
from lancelet.format.fragment_json import (
    data_file_from_json,
    data_file_to_json,
    deletion_file_from_json,
    deletion_file_to_json,
    fragment_from_json,
    fragment_to_json,
    overlay_from_json,
    overlay_to_json,
)

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class DeletionFile:
    """The metadata of a deletion file of a fragment."""

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int
    base_id: int | None

    def __init__(
        self,
        read_version: int,
        id: int,  # noqa: A002 - pylance's name
        file_type: str,
        num_deleted_rows: int,
        base_id: int | None = None,
    ) -> None:
        """Describe a file of type `array` or `bitmap`."""
        self.read_version = read_version
        self.id = id
        self.file_type = file_type
        self.num_deleted_rows = num_deleted_rows
        self.base_id = base_id

    def asdict(self) -> dict[str, Any]:
        """Return the metadata as a dict."""
        return dict(vars(self))

    def json(self) -> str:
        """Serialize the metadata to JSON."""
        return json.dumps(self.asdict())

    @staticmethod
    def from_json(json: str) -> DeletionFile:
        """Deserialize metadata from JSON."""
        return DeletionFile(**_loads(json))

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """Return the path of the file, relative to the table or to a base path."""
        path = deletion_file_from_json(self.asdict()).path(fragment_id)
        return path if base_uri is None else f"{base_uri}/{path}"

    def __eq__(self, other: object) -> bool:
        """Compare all fields."""
        return isinstance(other, DeletionFile) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # the class is mutable

    def __repr__(self) -> str:
        """Return the constructor call."""
        parts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"DeletionFile({parts})"


@dataclass(eq=True)
class _SequenceMeta:
    """Row ids or row versions of a fragment, in the JSON form of fragments."""

    form: Any

    def json(self) -> str:
        """Serialize the sequence to JSON."""
        return json.dumps(self.form)

    def asdict(self) -> Any:
        """Return the JSON form of the sequence."""
        return self.form


class RowIdMeta(_SequenceMeta):
    """The stable row ids of a fragment."""

    @staticmethod
    def from_json(json: str) -> RowIdMeta:
        """Deserialize row ids from JSON."""
        return RowIdMeta(_loads(json))

    @staticmethod
    def from_dict(form: Any) -> RowIdMeta:
        """Parse the JSON form of row ids."""
        return RowIdMeta(form)


class RowDatasetVersionMeta(_SequenceMeta):
    """The creation or last-update versions of the rows of a fragment."""

    @staticmethod
    def from_json(json: str) -> RowDatasetVersionMeta:
        """Deserialize row versions from JSON."""
        return RowDatasetVersionMeta(_loads(json))


class _CallablePath(str):
    """A path that can also be called; pylance once had a method `path`."""

    __slots__ = ()

    def __call__(self) -> str:
        warnings.warn(
            "DataFile.path() is deprecated, use DataFile.path instead",
            DeprecationWarning,
            stacklevel=2,
        )
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (str, (str(self),))


@dataclass(init=False)
class DataFile:
    """The metadata of a data file: its fields and their column indices."""

    _path: str
    fields: list[int]
    column_indices: list[int] = field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = None

    def __init__(
        self,
        path: str,
        fields: list[int],
        column_indices: list[int] | None = None,
        file_major_version: int = 0,
        file_minor_version: int = 0,
        file_size_bytes: int | None = None,
        base_id: int | None = None,
    ) -> None:
        """Describe a file by its path relative to the data folder."""
        self._path = path
        self.fields = fields
        self.column_indices = column_indices or []
        self.file_major_version = file_major_version
        self.file_minor_version = file_minor_version
        self.file_size_bytes = file_size_bytes
        self.base_id = base_id

    def __repr__(self) -> str:
        """Return the constructor call."""
        return (
            f"DataFile(path='{self._path}', fields={self.fields}, "
            f"column_indices={self.column_indices}, "
            f"file_major_version={self.file_major_version}, "
            f"file_minor_version={self.file_minor_version}, "
            f"file_size_bytes={self.file_size_bytes})"
        )

    @property
    def path(self) -> str:
        """The path relative to the data folder of the base."""
        return _CallablePath(self._path)

    def field_ids(self) -> list[int]:
        """Return the field ids. Deprecated: use `fields`."""
        warnings.warn(
            "DataFile.field_ids is deprecated, use DataFile.fields instead",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.fields

    @classmethod
    def create(cls, dataset: LanceDataset, path: str, *, base_id: int | None = None) -> DataFile:
        """Return the metadata of a file in the data folder of a dataset; columns match by name."""
        return file_to_user(describe_file(dataset.snapshot, path, base_id=base_id))


@dataclass
class DataOverlayFile:
    """An overlay: new values for some rows of a fragment.

    Attributes:
        data_file: The file with the values, in row order.
        offsets: The row offsets, common to all fields or per field; deleted rows are counted.
        committed_version: The version that committed the overlay; None before the commit.
    """

    data_file: DataFile
    offsets: Iterable[int] | list[Iterable[int]]
    committed_version: int | None = None


@dataclass
class FragmentMetadata:
    """The metadata of a fragment. A commit assigns the ids of new fragments."""

    id: int
    files: list[DataFile]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_meta: RowIdMeta | None = None
    created_at_version_meta: RowDatasetVersionMeta | None = None
    last_updated_at_version_meta: RowDatasetVersionMeta | None = None
    overlays: list[DataOverlayFile] = field(default_factory=list)

    @property
    def num_deletions(self) -> int:
        """The number of deleted rows."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """The number of live rows."""
        return self.physical_rows - self.num_deletions

    def data_files(self) -> list[DataFile]:
        """Return the data files. Deprecated: use `files`.

        Returns:
            The data files.
        """
        warnings.warn(
            "FragmentMetadata.data_files is deprecated. Use .files instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.files

    def to_json(self) -> dict[str, Any]:
        """Return the metadata as a JSON-compatible dict.

        Returns:
            The dict.

        Example:
            ```python
            lance.FragmentMetadata.from_json(json.dumps(dataset.get_fragment(0).metadata.to_json()))
            ```
        """
        deletion = self.deletion_file
        return {
            "id": self.id,
            "files": [_file_to_json(file) for file in self.files],
            "overlays": [_overlay_form(overlay) for overlay in self.overlays],
            "physical_rows": self.physical_rows,
            "deletion_file": None if deletion is None else deletion.asdict(),
            "row_id_meta": _form_of(self.row_id_meta),
            "created_at_version_meta": _form_of(self.created_at_version_meta),
            "last_updated_at_version_meta": _form_of(self.last_updated_at_version_meta),
        }

    @staticmethod
    def from_json(json_data: str) -> FragmentMetadata:
        """Parse JSON text.

        Args:
            json_data: The serialized result of `to_json`.

        Returns:
            The metadata.

        Raises:
            InvalidInputError: If an argument is invalid.
        """
        return fragment_to_user(fragment_from_json(_loads(json_data)))


def fragment_to_user(fragment: stored.Fragment) -> FragmentMetadata:
    """Convert a fragment to the public API."""
    form = fragment_to_json(fragment)
    deletion = fragment.deletion_file
    created, updated = form["created_at_version_meta"], form["last_updated_at_version_meta"]
    return FragmentMetadata(
        id=int(fragment.id),
        files=[file_to_user(file) for file in fragment.files],
        physical_rows=fragment.physical_rows,
        deletion_file=None if deletion is None else DeletionFile(**deletion_file_to_json(deletion)),
        row_id_meta=None if form["row_id_meta"] is None else RowIdMeta(form["row_id_meta"]),
        created_at_version_meta=None if created is None else RowDatasetVersionMeta(created),
        last_updated_at_version_meta=None if updated is None else RowDatasetVersionMeta(updated),
        overlays=[overlay_to_user(overlay) for overlay in fragment.overlays],
    )


def fragment_from_user(metadata: FragmentMetadata) -> stored.Fragment:
    """Convert a fragment of the public API."""
    return fragment_from_json(metadata.to_json())


def file_to_user(file: stored.DataFile) -> DataFile:
    """Convert data file metadata to the public API."""
    return DataFile(**data_file_to_json(file))


def file_from_user(file: DataFile) -> stored.DataFile:
    """Convert data file metadata of the public API."""
    return data_file_from_json(_file_to_json(file))


def overlay_to_user(overlay: stored.DataOverlay) -> DataOverlayFile:
    """Convert an overlay to the public API."""
    offsets = overlay_to_json(overlay)["offsets"]
    return DataOverlayFile(
        file_to_user(overlay.data_file), offsets, overlay.committed_version or None
    )


def overlay_from_user(overlay: DataOverlayFile) -> stored.DataOverlay:
    """Convert an overlay of the public API."""
    return overlay_from_json(_overlay_form(overlay))


def _overlay_form(overlay: DataOverlayFile) -> dict[str, Any]:
    return {
        "data_file": _file_to_json(overlay.data_file),
        "offsets": _offsets_form(overlay.offsets),
        "committed_version": overlay.committed_version,
    }


def _offsets_form(offsets: Any) -> list[Any]:
    """Return the row offsets in the API form: common to all fields or per field."""
    given: list[Any] = list(offsets) if isinstance(offsets, Iterable) else [None]
    if all(_is_offset(each) for each in given):
        return _ascending(given)
    if all(isinstance(each, Iterable) for each in given):
        rows = [list(each) for each in given]
        if all(_is_offset(each) for own in rows for each in own):
            return [_ascending(own) for own in rows]
    raise InvalidInputError(
        "DataOverlayFile.offsets must be an iterable of ints, common to all fields, or a list "
        "of iterables, one per field",
        offsets=repr(offsets),
    )


def _ascending(offsets: list[int]) -> list[int]:
    found = sorted(int(each) for each in offsets)
    repeated = next((own for own, after in pairwise(found) if own == after), None)
    if repeated is not None:
        raise InvalidInputError(
            "DataOverlayFile.offsets must be unique, so that sorted offsets are strictly "
            "ascending: each belongs to a row of the file",
            offset=repeated,
        )
    if found and not 0 <= found[0] <= found[-1] < 1 << 32:
        raise InvalidInputError("row offsets must be unsigned 32-bit integers", offsets=found)
    return found


def _is_offset(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _file_to_json(file: DataFile) -> dict[str, Any]:
    form = dict(vars(file))
    form["path"] = form.pop("_path")
    return form


def _form_of(meta: _SequenceMeta | None) -> Any:
    return None if meta is None else meta.form


def _loads(text: str | dict[str, Any]) -> Any:
    return json.loads(text) if isinstance(text, str | bytes) else text

"""The JSON index kind: another index kind, the target, over the values at a JSON path.

    documents   {"x": 7}   {"x": 9}   {"y": 1}   null
    path x      7          9          null       null       indexed by a BTREE, which owns the files

The details contain the path and the details of the target. All values have the type of the target
segment. The caller extracts the values from the documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lancelet.errors import InternalError, InvalidInputError, UnsupportedError
from lancelet.format.protos import index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.base import (
    AnyKind,
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    Segment,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import ScalarQuery

PATH: Final = "path"
TARGET: Final = "target_index_type"


class JsonPath(ScalarKind[Segment]):
    """The JSON index kind before its path and target are set."""

    name = "JSON"
    reads_json_text = True
    title = "Json"
    type_url = "/lance.index.pb.JsonIndexDetails"
    newest_version = 1
    unsupported_message = "a JSON index requires a JSON column"
    can_remap = False

    def __init__(self, targets: Sequence[AnyKind]) -> None:
        """Support targets of these kinds."""
        self._targets = {target.name: target for target in targets}
        self._by_type = {target.type_url.lower(): target for target in targets}

    def with_parameters(self, parameters: Parameters) -> AnyKind:
        """Return the kind for the path and target in the parameters."""
        path, target_name = parameters.values.get(PATH), parameters.values.get(TARGET)
        if not isinstance(path, str) or not isinstance(target_name, str):
            raise InvalidInputError(
                f"a JSON index requires the parameters {PATH!r} and {TARGET!r}",
                found=sorted(parameters.values),
            )
        target = self._targets.get(target_name.upper())
        if target is None:
            raise UnsupportedError(
                "unsupported target of a JSON index",
                found=target_name,
                expected=sorted(self._targets),
            )
        return JsonPathTo(target, path)

    def with_details(self, details: bytes) -> AnyKind | None:
        """Return the kind for the path and target in the details; None for unknown targets."""
        message = _parse(details)
        target = self._by_type.get(message.target_details.type_url.lower())
        return None if target is None else JsonPathTo(target, message.path)

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:
        """Return the file version of the target."""
        return self.with_parameters(parameters).version(parameters, stable_row_ids=stable_row_ids)

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return the path and the details of the target."""
        message = _parse(details)
        target = self._by_type.get(message.target_details.type_url.lower())
        target_details = {} if target is None else target.describe(message.target_details.value)
        return {PATH: message.path, "target_details": target_details}

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is JSON."""
        return isinstance(data_type, pa.JsonType)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Write the files of the target."""
        return self.with_parameters(parameters).train(rows, folder, parameters)

    def open(self, folder: SegmentFolder, details: bytes) -> Segment:
        """Open a segment of the target."""
        kind = self.with_details(details)
        if kind is None:
            raise UnsupportedError("unknown target of a JSON index")
        segment: Segment = kind.open(folder, details)
        return segment

    def merge(
        self,
        segments: Sequence[Segment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Raise; only a kind with a path can merge segments."""
        raise InternalError(
            "segments of a JSON index were merged without a path",
            segments=(len(segments), len(moves)),
            num_rows=rows.num_rows,
            path=folder.path,
        )


class JsonPathTo(JsonPath):
    """The JSON index kind for one path and target, under the name of the target."""

    def __init__(self, target: AnyKind, path: str) -> None:
        """Create the kind for a path and a target."""
        super().__init__([target])
        self._target = target
        self._path = path
        self.json_path = path
        self.name = target.name
        self.can_remap = target.can_remap
        self.addresses_since = target.addresses_since

    def with_parameters(self, parameters: Parameters) -> AnyKind:  # noqa: ARG002
        """Return the kind itself."""
        return self

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the file version of a target that stores row ids if rows have them.

        The reference supports no other version: it applies row moves to indices that it cannot
        read, which is only correct for row ids.
        """
        return self._target.version(parameters, stable_row_ids=False)

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether results of the target are exact."""
        return self._target.is_exact(query)

    def infer_parameters(self, details: bytes, segment: Segment | None) -> Parameters:
        """Return the path, the target, and the parameters of the target."""
        parameters = self._target.infer_parameters(_parse(details).target_details.value, segment)
        return Parameters({**parameters.values, PATH: self._path, TARGET: self.name})

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Write the files of the target for extracted values."""
        self._target.check_type(rows.data_type, self._path)
        return self._wrap_details(self._target.train(rows, folder, parameters))

    def open(self, folder: SegmentFolder, details: bytes) -> Segment:
        """Open a segment of the target."""
        segment: Segment = self._target.open(folder, _parse(details).target_details.value)
        return segment

    def merge(
        self,
        segments: Sequence[Segment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge segments of the target."""
        return self._wrap_details(self._target.merge(segments, moves, rows, folder))

    def remap(self, segment: Segment, move: Move, folder: SegmentFolder) -> bytes | None:
        """Write a segment of the target with new row numbers."""
        details = self._target.remap(segment, move, folder)
        return None if details is None else self._wrap_details(details)

    def _wrap_details(self, details: bytes) -> bytes:
        message = index_pb.JsonIndexDetails(path=self._path)
        message.target_details.type_url = self._target.type_url
        message.target_details.value = details
        return render_message(message)


def _parse(details: bytes) -> index_pb.JsonIndexDetails:
    return parse_message(index_pb.JsonIndexDetails, details)

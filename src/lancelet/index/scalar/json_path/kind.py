"""The JSON kind: an index of another kind, the target, over what a path finds in documents.

    documents   {"x": 7}   {"x": 9}   {"y": 1}   null
    path x      7          9          null       null       in a BTREE, whose files are all there is

The details name the path and hold the details of the target. All values are of one type, which
the files of the target have; whoever builds the index takes the values out of the documents.
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
    """The kind before it is known which path and which target are meant."""

    name = "JSON"
    reads_json_text = True
    title = "Json"
    type_url = "/lance.index.pb.JsonIndexDetails"
    newest_version = 1
    unsupported_message = "a JSON index needs a column of JSON documents"
    can_remap = False

    def __init__(self, targets: Sequence[AnyKind]) -> None:
        """Allow targets of these kinds."""
        self._targets = {target.name: target for target in targets}
        self._by_type = {target.type_url.lower(): target for target in targets}

    def with_parameters(self, parameters: Parameters) -> AnyKind:
        """Return the kind for the path and the target that are asked for."""
        path, wanted = parameters.values.get(PATH), parameters.values.get(TARGET)
        if not isinstance(path, str) or not isinstance(wanted, str):
            raise InvalidInputError(
                f"an index of JSON needs the parameters {PATH!r} and {TARGET!r}",
                found=sorted(parameters.values),
            )
        target = self._targets.get(wanted.upper())
        if target is None:
            raise UnsupportedError(
                "an index of JSON cannot have a target of that kind",
                found=wanted,
                known=sorted(self._targets),
            )
        return JsonPathTo(target, path)

    def with_details(self, details: bytes) -> AnyKind | None:
        """Return the kind for the path and the target that details name; None if it is unknown."""
        found = _parse(details)
        target = self._by_type.get(found.target_details.type_url.lower())
        return None if target is None else JsonPathTo(target, found.path)

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:
        """Return the version of the target."""
        return self.with_parameters(parameters).version(parameters, stable_row_ids=stable_row_ids)

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return the path, and what the details of the target say."""
        found = _parse(details)
        target = self._by_type.get(found.target_details.type_url.lower())
        own = {} if target is None else target.describe(found.target_details.value)
        return {PATH: found.path, "target_details": own}

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the column holds documents."""
        return isinstance(data_type, pa.JsonType)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Write the files of the target that is asked for."""
        return self.with_parameters(parameters).train(rows, folder, parameters)

    def open(self, folder: SegmentFolder, details: bytes) -> Segment:
        """Open a segment of the target that the details name."""
        kind = self.with_details(details)
        if kind is None:
            raise UnsupportedError("the target of an index of JSON is of an unknown kind")
        opened: Segment = kind.open(folder, details)
        return opened

    def merge(
        self,
        segments: Sequence[Segment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Refuse: only the kind for a path knows what it merges."""
        raise InternalError(
            "segments of an index of JSON were merged without their path",
            segments=(len(segments), len(moves)),
            num_rows=rows.num_rows,
            path=folder.path,
        )


class JsonPathTo(JsonPath):
    """The kind for one path and one target; what it is called is what the target is called."""

    def __init__(self, target: AnyKind, path: str) -> None:
        """Index what `path` finds, with a target."""
        super().__init__([target])
        self._target = target
        self._path = path
        self.json_path = path
        self.name = target.name
        self.can_remap = target.can_remap
        self.addresses_since = target.addresses_since

    def with_parameters(self, parameters: Parameters) -> AnyKind:  # noqa: ARG002
        """Return this kind: all is known."""
        return self

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the version of a target that numbers rows by their ids, where they have any.

        The reference knows no other. It takes rows that it moves to be in an index that it does
        not know, which is only right of ids.
        """
        return self._target.version(parameters, stable_row_ids=False)

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether answers of the target to a question have no other rows."""
        return self._target.is_exact(query)

    def infer_parameters(self, details: bytes, segment: Segment | None) -> Parameters:
        """Return the path, the target, and what the target was asked for."""
        own = self._target.infer_parameters(_parse(details).target_details.value, segment)
        return Parameters({**own.values, PATH: self._path, TARGET: self.name})

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Write the files of the target for values that were found."""
        self._target.check_type(rows.data_type, self._path)
        return self._wrapped(self._target.train(rows, folder, parameters))

    def open(self, folder: SegmentFolder, details: bytes) -> Segment:
        """Open the segment of the target."""
        opened: Segment = self._target.open(folder, _parse(details).target_details.value)
        return opened

    def merge(
        self,
        segments: Sequence[Segment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Write one segment of the target."""
        return self._wrapped(self._target.merge(segments, moves, rows, folder))

    def remap(self, segment: Segment, move: Move, folder: SegmentFolder) -> bytes | None:
        """Write the segment of the target with other numbers."""
        details = self._target.remap(segment, move, folder)
        return None if details is None else self._wrapped(details)

    def _wrapped(self, details: bytes) -> bytes:
        message = index_pb.JsonIndexDetails(path=self._path)
        message.target_details.type_url = self._target.type_url
        message.target_details.value = details
        return render_message(message)


def _parse(details: bytes) -> index_pb.JsonIndexDetails:
    return parse_message(index_pb.JsonIndexDetails, details)

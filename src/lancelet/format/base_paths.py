"""Base paths: directories outside the table directory that hold some of its files.

    base 3   s3://cold/archive   a dataset root       file f.lance -> s3://cold/archive/data/f.lance
    base 4   s3://landing        a plain directory    file f.lance -> s3://landing/f.lance

A file without a base id is in the table directory. Base id 0 has no special meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from lancelet.errors import CorruptDataError
from lancelet.format.protos import table_pb
from lancelet.format.wire import unknown_fields
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class BasePath:
    """A directory outside the table directory.

    A dataset root has the subdirectories `data`, `_deletions` and `_indices`; a plain directory
    contains the files directly. `path` is absolute.
    """

    id: int
    path: str
    is_dataset_root: bool = False
    name: str | None = None
    unknown: bytes = b""

    def locate(self, directory: str, path: str) -> str:
        """Return the absolute path of a file; a dataset root stores it in `directory`.

        >>> BasePath(1, "s3://b/t", is_dataset_root=True).locate("data", "f.lance")
        's3://b/t/data/f.lance'
        """
        root = self.path.rstrip("/")
        return f"{root}/{directory}/{path}" if self.is_dataset_root else f"{root}/{path}"


def get_base(bases: Mapping[int, BasePath], base_id: int) -> BasePath:
    """Return the base with the given id. Raise if the manifest does not define it."""
    if base_id not in bases:
        raise CorruptDataError(
            "a file refers to a base path that the manifest does not define",
            base_id=base_id,
            existing=sorted(bases),
        )
    return bases[base_id]


def base_path_from_proto(proto: table_pb.BasePath) -> BasePath:
    """Convert a protobuf message to a base path."""
    return BasePath(
        id=proto.id,
        path=proto.path,
        is_dataset_root=proto.is_dataset_root,
        name=proto.name if proto.HasField("name") else None,
        unknown=unknown_fields(proto),
    )


def base_path_to_proto(base: BasePath) -> table_pb.BasePath:
    """Convert a base path to a protobuf message."""
    proto = table_pb.BasePath(
        id=base.id, path=base.path, is_dataset_root=base.is_dataset_root, name=base.name
    )
    if base.unknown:
        proto.MergeFromString(base.unknown)
    return proto

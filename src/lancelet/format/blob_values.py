"""Blob values to write, as bytes or as references to external data.

    blob_array([b"abc", None, "s3://bucket/x.mp4", Blob.from_uri("s3://b/y", 100, 50)])

is a column of type `BlobType`. `blob_field` creates a field of that type with its own thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.format.extension import BLOB_V2
from lancelet.values import dataclass

_STORAGE: Final = pa.struct(
    [
        ("data", pa.large_binary()),
        ("uri", pa.string()),
        ("position", pa.uint64()),
        ("size", pa.uint64()),
    ]
)
STORAGE_WITHOUT_RANGE: Final = pa.struct([_STORAGE.field("data"), _STORAGE.field("uri")])
_THRESHOLD: Final = "lance-encoding:blob-{}-size-threshold"


_SIZE_BITS: Final = 64


class BlobTypeError(InvalidInputError, TypeError):
    """A value cannot be converted to a blob."""


class ThresholdError(InvalidInputError, OverflowError):
    """A size threshold exceeds the range of a file size."""


@dataclass(frozen=True)
class Blob:
    """A blob to write: its bytes, or a URI with an optional byte range.

    Attributes:
      data: The bytes.
      uri: The URI of an external blob.
      position: The start of the byte range.
      size: The length of the byte range.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        """Validate the combination of arguments."""
        if (self.data is None) == (self.uri is None):
            raise InvalidInputError(
                "Blob must set either `data` or `uri`; use None for a null blob"
            )
        if self.uri == "":
            raise InvalidInputError("Blob uri cannot be empty")
        if (self.position is None) != (self.size is None):
            raise InvalidInputError("External blob must set both position and size, or neither")
        if self.position is None or self.size is None:
            return
        if self.uri is None:
            raise InvalidInputError("Only a blob with a uri has a position and a size")
        if self.position < 0 or self.size < 1:
            raise InvalidInputError(
                "The range of an external blob is not empty and starts at 0 or later",
                position=self.position,
                size=self.size,
            )

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Blob:
        """Create a blob from bytes."""
        return Blob(bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """Create an external blob from a URI and an optional byte range; the data is not copied."""
        return Blob(None, uri, position, size)

    @staticmethod
    def empty() -> Blob:
        """Create an empty blob, which differs from null."""
        return Blob(b"")


class BlobType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types for it
    """The Arrow type of blobs to write. Scans return descriptors instead."""

    def __init__(self) -> None:
        """Create the type."""
        super().__init__(_STORAGE, BLOB_V2)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BlobType:
        """Create the type from its storage type, which lacks a byte range in older tables.

        Raises:
          BlobTypeError: If the storage type is not that of blobs.
        """
        del serialized
        if storage_type not in (_STORAGE, STORAGE_WITHOUT_RANGE):
            raise BlobTypeError(
                "the storage type of a blob column has unexpected fields", found=str(storage_type)
            )
        blob_type = cls.__new__(cls)
        pa.ExtensionType.__init__(blob_type, storage_type, BLOB_V2)
        return blob_type

    def __arrow_ext_class__(self) -> type[BlobArray]:
        return BlobArray

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__arrow_ext_deserialize__, (self.storage_type, b"")


class BlobArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow has no types for it
    """A column of blobs to write."""

    @classmethod
    def from_pylist(cls, values: Sequence[Any]) -> BlobArray:
        """Create a column from bytes, URIs, `Blob` values and None for null."""
        rows = [None if blob is None else vars(blob) for blob in map(_to_blob, values)]
        array: BlobArray = pa.ExtensionArray.from_storage(BlobType(), pa.array(rows, _STORAGE))
        return array


def blob_array(values: Sequence[Any]) -> BlobArray:
    """Create a column of blobs to write; see `BlobArray.from_pylist`."""
    return BlobArray.from_pylist(values)


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """Create a field of blobs.

    Args:
      name: The name of the field.
      nullable: Whether blobs may be null.
      inline_size_threshold: The maximum size in bytes of a blob that is stored in the data file.
      dedicated_size_threshold: The minimum size in bytes of a blob that gets its own file.
      pack_file_size_threshold: The maximum size in bytes of a file that blobs share.
    """
    thresholds = {
        "inline": inline_size_threshold,
        "dedicated": dedicated_size_threshold,
        "pack-file": pack_file_size_threshold,
    }
    metadata: dict[str, str] = {}
    for kind, size in thresholds.items():
        if size is None:
            continue
        argument = f"{kind.replace('-', '_')}_size_threshold"
        if not isinstance(size, int) or isinstance(size, bool):
            raise BlobTypeError(f"{argument} must be an int", found=size)
        if size < (0 if kind == "inline" else 1):
            requirement = "non-negative" if kind == "inline" else "positive"
            raise InvalidInputError(f"{argument} must be {requirement}", found=size)
        if size >> _SIZE_BITS:
            raise ThresholdError(
                f"{argument} must fit in a Rust usize, which has {_SIZE_BITS} bits", found=size
            )
        metadata[_THRESHOLD.format(kind)] = str(size)
    return pa.field(name, BlobType(), nullable, metadata or None)


def _to_blob(value: Any) -> Blob | None:
    match value:
        case None | Blob():
            return value
        case bytes() | bytearray() | memoryview():
            return Blob.from_bytes(value)
        case str():
            return Blob.from_uri(value)
    raise BlobTypeError(
        "BlobArray values must be bytes-like, str (URI), Blob, or None", found=str(type(value))
    )


with suppress(
    pa.ArrowKeyError
):  # Another Lance reader in this process may have registered the type.
    pa.register_extension_type(BlobType())

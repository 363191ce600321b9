"""Blobs as values to write: bytes, or where they are already.

    blob_array([b"abc", None, "s3://bucket/x.mp4", Blob.from_uri("s3://b/y", 100, 50)])

is a column of type `BlobType`; `blob_field` is a field of that type with its own thresholds.
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
    """A value cannot be a blob."""


class ThresholdError(InvalidInputError, OverflowError):
    """A size is larger than any file."""


@dataclass(frozen=True)
class Blob:
    """A blob to write: its bytes, or a URI with an optional range of what is there.

    Attributes:
        data: The bytes.
        uri: Where they are instead.
        position: Where the range starts.
        size: How long the range is.
    """

    data: bytes | None = None
    uri: str | None = None
    position: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no blob, or two at once."""
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
        """Return a blob of bytes."""
        return Blob(bytes(data))

    @staticmethod
    def from_uri(uri: str, position: int | None = None, size: int | None = None) -> Blob:
        """Return a blob that stays where it is, or a range of it."""
        return Blob(None, uri, position, size)

    @staticmethod
    def empty() -> Blob:
        """Return a blob without bytes, which is not null."""
        return Blob(b"")


class BlobType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types for it
    """The Arrow type of blobs to write; scans return where they are."""

    def __init__(self) -> None:
        """Make the type."""
        super().__init__(_STORAGE, BLOB_V2)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BlobType:
        """Return the type over its storage, which older tables have without a range.

        Raises:
            BlobTypeError: If the storage is not that of blobs.
        """
        del serialized
        if storage_type not in (_STORAGE, STORAGE_WITHOUT_RANGE):
            raise BlobTypeError("the storage of a blob has other fields", found=str(storage_type))
        found = cls.__new__(cls)
        pa.ExtensionType.__init__(found, storage_type, BLOB_V2)
        return found

    def __arrow_ext_class__(self) -> type[BlobArray]:
        return BlobArray

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__arrow_ext_deserialize__, (self.storage_type, b"")


class BlobArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow has no types for it
    """A column of blobs to write."""

    @classmethod
    def from_pylist(cls, values: Sequence[Any]) -> BlobArray:
        """Return a column of bytes, URIs, `Blob`s and None for null."""
        rows = [None if blob is None else vars(blob) for blob in map(_blob_of, values)]
        array: BlobArray = pa.ExtensionArray.from_storage(BlobType(), pa.array(rows, _STORAGE))
        return array


def blob_array(values: Sequence[Any]) -> BlobArray:
    """Return a column of blobs to write; see `BlobArray.from_pylist`."""
    return BlobArray.from_pylist(values)


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field:
    """Return a field of blobs.

    Args:
        name: Its name.
        nullable: Whether blobs may be null.
        inline_size_threshold: Up to how many bytes a blob lies in the data file.
        dedicated_size_threshold: From how many bytes on it has a file of its own.
        pack_file_size_threshold: How large files are in which others share.
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
            wanted = "non-negative" if kind == "inline" else "positive"
            raise InvalidInputError(f"{argument} must be {wanted}", found=size)
        if size >> _SIZE_BITS:
            raise ThresholdError(
                f"{argument} must fit in a Rust usize, which has {_SIZE_BITS} bits", found=size
            )
        metadata[_THRESHOLD.format(kind)] = str(size)
    return pa.field(name, BlobType(), nullable, metadata or None)


def _blob_of(value: Any) -> Blob | None:
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


with suppress(pa.ArrowKeyError):  # another reader of Lance in this process was first
    pa.register_extension_type(BlobType())

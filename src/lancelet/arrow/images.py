r"""Arrow extension types of images: URIs, encoded images and tensors.

    ImageURIArray ["file:///a/1.png"]      read_uris()
    EncodedImageArray [b"\x89PNG.."]       to_tensor()
    FixedShapeImageTensorArray             to_numpy() of shape (1, height, width, channels)

Images are encoded and decoded by Pillow or a user function.
"""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from lancelet.errors import InvalidInputError, StorageError

_PREVIEW_BYTES: Final = 30
_HTTP_PREFIXES: Final = ("http://", "https://")
_TIMEOUT_SECONDS: Final = 60

Decoder: TypeAlias = Callable[[pa.Array], npt.NDArray[Any]]
"""Decodes images to an array of pixels; the first axis is the image."""

Encoder: TypeAlias = Callable[[npt.NDArray[Any]], pa.Array]
"""Encodes an array of pixels."""


class ImageTypeError(InvalidInputError, TypeError):
    """A value cannot be converted to images."""


class _ImageType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow's stubs leave the base untyped
    """The base class of image types."""

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        del serialized
        return cls(storage_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self).__arrow_ext_deserialize__,
            (self.storage_type, self.__arrow_ext_serialize__()),
        )


class ImageURIType(_ImageType):
    """The type of columns with URIs of images."""

    def __init__(self, storage_type: pa.DataType = pa.string()) -> None:  # noqa: B008 - a constant
        """Create the type with the storage type `string` or `large_string`."""
        if storage_type not in {pa.string(), pa.large_string()}:
            raise InvalidInputError("storage_type must be a string type", found=str(storage_type))
        super().__init__(storage_type, "lance.arrow.image_uri")

    def __arrow_ext_class__(self) -> type[ImageURIArray]:
        return ImageURIArray

    def __arrow_ext_scalar_class__(self) -> type[ImageURIScalar]:
        return ImageURIScalar


class EncodedImageType(_ImageType):
    """The type of columns with encoded images."""

    def __init__(self, storage_type: pa.DataType = pa.binary()) -> None:  # noqa: B008 - a constant
        """Create the type with the storage type `binary` or `large_binary`."""
        if storage_type not in {pa.binary(), pa.large_binary()}:
            raise InvalidInputError("storage_type must be a binary type", found=str(storage_type))
        super().__init__(storage_type, "lance.arrow.encoded_image")

    def __arrow_ext_class__(self) -> type[EncodedImageArray]:
        return EncodedImageArray

    def __arrow_ext_scalar_class__(self) -> type[EncodedImageScalar]:
        return EncodedImageScalar


class FixedShapeImageTensorType(_ImageType):
    """The type of columns with pixels of images of equal shape."""

    def __init__(self, arrow_type: pa.DataType, shape: Sequence[int]) -> None:
        """Create the type with the type of pixels and the shape of images."""
        if not len(shape):
            raise InvalidInputError("an image must have at least one dimension")
        self.shape = shape
        self.arrow_type = arrow_type
        length = int(np.prod(shape, dtype=np.int64))
        super().__init__(pa.list_(arrow_type, length), "lance.arrow.fixed_shape_image_tensor")

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"shape": list(self.shape)}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Self:
        return cls(storage_type.value_type, json.loads(serialized)["shape"])

    def __arrow_ext_class__(self) -> type[FixedShapeImageTensorArray]:
        return FixedShapeImageTensorArray

    def __arrow_ext_scalar_class__(self) -> type[FixedShapeImageTensorScalar]:
        return FixedShapeImageTensorScalar


class ImageArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow's stubs leave the base untyped
    """The base class of image arrays."""

    def __repr__(self) -> str:
        return f"<lance.arrow.{type(self).__name__} object at 0x{id(self):016x}>\n{self._preview()}"

    def _preview(self) -> str:
        return repr(self.to_pylist())

    @classmethod
    def from_array(cls, images: Any) -> ImageArray:
        """Convert URIs, encoded images or tensors to an image array."""
        if isinstance(images, ImageArray):
            return images
        if isinstance(images, pa.StringArray | pa.LargeStringArray):
            data_type: pa.ExtensionType = ImageURIType(images.type)
        elif isinstance(images, pa.BinaryArray | pa.LargeBinaryArray):
            data_type = EncodedImageType(images.type)
        elif isinstance(images, pa.FixedShapeTensorArray):
            data_type = FixedShapeImageTensorType(images.type.value_type, images.type.shape)
            images = images.storage
        elif isinstance(images, Iterable):
            images, data_type = pa.array(images, pa.string()), ImageURIType()
        else:
            raise ImageTypeError("cannot build an ImageArray", found=type(images).__name__)
        array: ImageArray = _from_storage(data_type, images)
        return array


class ImageURIArray(ImageArray):
    """URIs of images: local files, files of Arrow file systems, or HTTP URLs."""

    @classmethod
    def from_uris(cls, uris: Any) -> ImageURIArray:
        """Create an array of URIs.

        >>> ImageURIArray.from_uris(["file:///a/1.png"]).to_pylist()
        ['file:///a/1.png']
        """
        if not isinstance(uris, Iterable):
            raise ImageTypeError("URIs must be an array or a list", found=type(uris).__name__)
        if not isinstance(uris, pa.StringArray | pa.LargeStringArray):
            uris = pa.array([str(uri) for uri in uris], pa.string())
        images: ImageURIArray = _from_storage(ImageURIType(uris.type), uris)
        return images

    def read_uris(self, storage_type: pa.DataType = pa.binary()) -> EncodedImageArray:  # noqa: B008 - a constant
        """Read the images; more than 2 GiB require `large_binary`."""
        data = [None if uri is None else _read(uri) for uri in self.storage.to_pylist()]
        images: EncodedImageArray = _from_storage(
            EncodedImageType(storage_type), pa.array(data, storage_type)
        )
        return images


class EncodedImageArray(ImageArray):
    """Encoded images of any format."""

    def _preview(self) -> str:
        first = self[0].as_py() if len(self) else None
        if first is None:
            return repr(None)
        data = repr(first[:_PREVIEW_BYTES])
        if find_spec("PIL") is None:
            return data
        try:
            image = _pillow().open(io.BytesIO(first))
        except OSError:
            # Pillow does not support the format.
            return data
        return f"[{image!r}, ..]\n{data}"

    def to_tensor(self, decoder: Decoder | None = None) -> FixedShapeImageTensorArray:
        """Decode the images, which must have the same shape.

        Args:
            decoder: Decodes an array of bytes to pixels; Pillow by default.
        """
        decoded = (decoder or _decode_with_pillow)(self.storage)
        tensors = (
            decoded
            if isinstance(decoded, pa.FixedShapeTensorArray)
            else pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(decoded))
        )
        data_type = FixedShapeImageTensorType(tensors.type.value_type, tensors.type.shape)
        images: FixedShapeImageTensorArray = _from_storage(data_type, tensors.storage)
        return images


class FixedShapeImageTensorArray(ImageArray):
    """Pixels of images of equal shape."""

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return an array of pixels; the first axis is the image."""
        tensor_type = pa.fixed_shape_tensor(self.storage.type.value_type, self.type.shape)
        pixels: npt.NDArray[Any] = pa.ExtensionArray.from_storage(
            tensor_type, self.storage
        ).to_numpy_ndarray()
        return pixels

    def to_encoded(
        self,
        encoder: Encoder | None = None,
        storage_type: pa.DataType = pa.binary(),  # noqa: B008 - a constant
    ) -> EncodedImageArray:
        """Encode the images; the default format is PNG.

        Args:
            encoder: Encodes pixels to an array of bytes; Pillow by default.
            storage_type: `binary`, or `large_binary` for more than 2 GiB.
        """
        encoded = (encoder or _encode_with_pillow)(self.to_numpy()).cast(storage_type)
        images: EncodedImageArray = _from_storage(EncodedImageType(storage_type), encoded)
        return images


class ImageScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow's stubs leave the base untyped
    """One image of an array."""

    def as_py(self, **kwargs: Any) -> Any:
        """Return the URI, the encoded bytes, or a flat list of pixels."""
        return None if self.value is None else self.value.as_py(**kwargs)


class ImageURIScalar(ImageScalar):
    """The URI of one image."""


class EncodedImageScalar(ImageScalar):
    """One encoded image."""


class FixedShapeImageTensorScalar(ImageScalar):
    """The pixels of one image."""


def _from_storage(data_type: pa.ExtensionType, storage: pa.Array) -> Any:
    return pa.ExtensionArray.from_storage(data_type, storage)


def _read(uri: str) -> bytes:
    try:
        if uri.startswith(_HTTP_PREFIXES):
            with urllib.request.urlopen(uri, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310 - the scheme is http
                web: bytes = reply.read()
                return web
        if "://" not in uri:
            return Path(uri).read_bytes()
        filesystem, path = fs.FileSystem.from_uri(uri)
        with filesystem.open_input_stream(path) as file:
            stored: bytes = file.read()
            return stored
    except OSError as error:
        raise StorageError("cannot read an image", uri=uri) from error


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise InvalidInputError(
            "Pillow is required to decode and encode images; install it, or pass a function"
        ) from error
    return Image


def _decode_with_pillow(images: pa.Array) -> npt.NDArray[Any]:
    pillow = _pillow()
    return np.stack([np.asarray(pillow.open(io.BytesIO(data))) for data in images.to_pylist()])


def _encode_with_pillow(pixels: npt.NDArray[Any]) -> pa.Array:
    pillow = _pillow()
    encoded = []
    for image in pixels:
        file = io.BytesIO()
        pillow.fromarray(image).save(file, format="PNG")
        encoded.append(file.getvalue())
    return pa.array(encoded, pa.large_binary())

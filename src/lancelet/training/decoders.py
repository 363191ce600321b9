"""Decoders of values by name: `decode={"picture": "image"}`.

    image       encoded image -> array of pixels with the shape (height, width, 3), by Pillow
    video       encoded video -> array with the shape (frames, height, width, 3), by PyAV

Packages register decoders as entry points of the group `lancelet.decoders`. The entry point has the
name of the decoder and refers to a function that converts the bytes of a value to an object.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import InvalidInputError, UnsupportedError

Decoder = Callable[[Any], Any]
_GROUP: Final = "lancelet.decoders"


def decoder_of(decoder: str | Decoder) -> Decoder:
    """Return the decoder with the given name, or the given function.

    Raises:
        InvalidInputError: No installed package provides the decoder.
    """
    if not isinstance(decoder, str):
        return decoder
    if decoder in _BUILT_IN:
        return _BUILT_IN[decoder]
    plugins = entry_points(group=_GROUP)
    for each in plugins.select(name=decoder):
        loaded: Decoder = each.load()
        return loaded
    names = sorted({*_BUILT_IN, *plugins.names})
    raise InvalidInputError("unknown decoder", decoder=decoder, expected=names)


def decode_image(data: Any) -> npt.NDArray[np.uint8]:
    """Decode an image to an array with the shape (height, width, 3).

    Raises:
        UnsupportedError: Pillow is not installed.
    """
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("decoding images requires Pillow: pip install pillow") from error
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def decode_video(data: Any) -> npt.NDArray[np.uint8]:
    """Decode the frames of a video to an array with the shape (frames, height, width, 3).

    Raises:
        UnsupportedError: PyAV is not installed.
        InvalidInputError: The video has no frames.
    """
    try:
        import av  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("decoding videos requires PyAV: pip install av") from error
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    if not frames:
        raise InvalidInputError("the video has no frames", bytes=len(data))
    return np.stack(frames)


_BUILT_IN: Final[Mapping[str, Decoder]] = {"image": decode_image, "video": decode_video}

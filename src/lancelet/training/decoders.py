"""Decoders of values by name: `decode={"picture": "image"}`.

    image       bytes of an image -> its pixels, height by width by red, green and blue (Pillow)

A package adds others by entry points of the group `lancelet.decoders`: the name of one is that of
the decoder, and its object a function from the bytes of a value to an array, a tensor or any other
object.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import InvalidInputError, UnsupportedError

Decoder = Callable[[Any], Any]
_GROUP: Final = "lancelet.decoders"


def decoder_of(decoder: str | Decoder) -> Decoder:
    """Return a decoder, which may be given by its name.

    Raises:
        InvalidInputError: No installed package has a decoder of the name.
    """
    if not isinstance(decoder, str):
        return decoder
    if decoder == "image":
        return decode_image
    found = entry_points(group=_GROUP)
    for each in found.select(name=decoder):
        loaded: Decoder = each.load()
        return loaded
    known = sorted({"image", *found.names})
    raise InvalidInputError("no decoder has that name", decoder=decoder, known=known)


def decode_image(data: Any) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image as height x width x 3 bytes.

    Raises:
        UnsupportedError: Pillow is not installed.
    """
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("images are opened by Pillow: pip install pillow") from error
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))

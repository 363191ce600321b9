"""Values of Hugging Face data sets, under pylance's name for the module."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lancelet.errors import UnsupportedError


class HuggingFaceConverter:
    """Makes what a data set's features say of columns; images, so far."""

    def __init__(self, ds_info: Mapping[str, Any]) -> None:
        """Take the info of a data set, as the metadata of its schema has it."""
        self.ds_info = ds_info

    def to_pytorch(self, col: str, array: pa.Array) -> list[Any] | None:
        """Return the images of a column, or None if the features do not mention it.

        Args:
            col: The name of the column.
            array: Its values, with their bytes or where their files are.
        """
        feature = self.ds_info["info"]["features"].get(col)
        if feature is None:
            return None
        if feature["_type"] != "Image":
            raise UnsupportedError(
                f"Conversion to {feature['_type']} is not implemented", column=col
            )
        return [_image(value.as_py()) for value in array]


def _image(value: Mapping[str, Any]) -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("images are opened by Pillow; install `pillow`") from error
    data = value.get("bytes")
    return Image.open(value["path"] if data is None else io.BytesIO(data))

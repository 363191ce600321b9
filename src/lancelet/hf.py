"""Hugging Face datasets: their splits as one table, and conversion of their columns."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lancelet.change.rows import read_rows
from lancelet.errors import InvalidInputError, UnsupportedError


class HuggingFaceConverter:
    """Converts columns according to the features of a dataset; supports images."""

    def __init__(self, ds_info: Mapping[str, Any]) -> None:
        """Parse the dataset info from the schema metadata."""
        self.ds_info = ds_info

    def to_pytorch(self, col: str, array: pa.Array) -> list[Any] | None:
        """Return the images of a column, or None if the features do not include it.

        Args:
            col: The name of the column.
            array: The values, with the bytes or paths of the images.
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
        raise UnsupportedError("images require Pillow; install `pillow`") from error
    data = value.get("bytes")
    return Image.open(value["path"] if data is None else io.BytesIO(data))


def with_split_column(splits: Mapping[str, Any], column: str = "split") -> pa.RecordBatchReader:
    """Return the rows of all splits of a `DatasetDict`, with a column for the split name.

    Args:
        splits: The datasets by split name; all must have the same features.
        column: The name of the new column.

    Returns:
        A record batch reader for `write_dataset` that streams the rows.

    Raises:
        InvalidInputError: If there are no splits, if the column exists, or if the features of the
            splits differ.

    Example:
        ```
        splits = datasets.load_dataset("org/name")
        lancelet.write_dataset(with_split_column(splits), "all.lance")
        ```
    """
    streams = {name: read_rows(rows) for name, rows in splits.items()}
    if not streams:
        raise InvalidInputError("there are no splits")
    schema = next(iter(streams.values())).schema
    if column in schema.names:
        raise InvalidInputError("the splits already have a column of this name", column=column)
    for name, stream in streams.items():
        if not stream.schema.equals(schema):
            raise InvalidInputError(
                "the splits have different features",
                split=name,
                found=str(stream.schema),
                expected=str(schema),
            )
    whole = schema.append(pa.field(column, pa.string()))

    def batches() -> Iterator[pa.RecordBatch]:
        for name, stream in streams.items():
            for batch in stream.batches:
                names = pa.repeat(pa.scalar(name), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns, names], schema=whole)

    return pa.RecordBatchReader.from_batches(whole, batches())

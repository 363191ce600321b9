"""What a field's metadata asks of the writer.

    {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "9"}
    -> EncodingOptions(compression=Compression.ZSTD, compression_level=9)

A key that is absent leaves the choice to the writer, which measures (`choose`). A key that is
there decides, also when measuring would have chosen otherwise; a value that cannot be understood
is an error that names the field, never a silent default. Keys that belong to other parts of the
writer (`blob`, index hints) are carried here as well, so that there is one place that knows them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Final, TypeVar

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

PREFIX: Final = "lance-encoding:"
PACKED_KEY_BEFORE_2_1: Final = "packed"


class Compression(Enum):
    """A general compression, or the one for strings."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    FSST = "fsst"


class ByteStreamSplitMode(Enum):
    """Whether the bytes of floats are regrouped before general compression."""

    OFF = "off"
    ON = "on"
    AUTO = "auto"


class StructuralEncoding(Enum):
    """How values and their nesting are laid out in a page."""

    MINI_BLOCK = "miniblock"
    FULL_ZIP = "fullzip"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """The wishes of one field; `None` leaves the choice to the writer."""

    compression: Compression | None = None
    """General compression of the values, or `none` to forbid it."""
    compression_level: int | None = None
    """Level of zstd."""
    rle_threshold: float | None = None
    """Use run lengths if there are fewer runs than this share of the values; 0 forbids them."""
    bss: ByteStreamSplitMode = ByteStreamSplitMode.AUTO
    """Byte stream split."""
    dict_too_small: int = 100
    """With fewer values than this a dictionary is not worth its lookup."""
    dict_divisor: int = 2
    """A dictionary has at most `values / dict_divisor` items."""
    dict_size_ratio: float = 0.8
    """A dictionary with its indices takes at most this share of the plain values."""
    dict_max_size: int = 100_000
    """A dictionary has at most this many items."""
    dict_values_compression: Compression | None = None
    """General compression of a dictionary's items."""
    dict_values_compression_level: int | None = None
    """Level of zstd for a dictionary's items."""
    structural_encoding: StructuralEncoding | None = None
    """Force one page layout."""
    minichunk_size: int | None = None
    """The bytes that a chunk of variable-width values is cut to."""
    packed: bool = False
    """Store a struct row by row."""
    blob: bool = False
    """Store values out of line."""
    blob_inline_size_threshold: int | None = None
    """The largest blob kept in the data file."""
    blob_dedicated_size_threshold: int | None = None
    """A blob of more bytes has a sidecar of its own."""
    blob_pack_file_size_threshold: int | None = None
    """The largest shared sidecar."""

    @staticmethod
    def from_metadata(
        field_name: str, metadata: Mapping[bytes, bytes] | Mapping[str, str] | None
    ) -> EncodingOptions:
        """Read the wishes of a field, raising `InvalidInputError` for a value that makes no sense.

        >>> EncodingOptions.from_metadata("x", {"lance-encoding:compression": "zstd"}).compression
        <Compression.ZSTD: 'zstd'>
        """
        given: dict[str, Any] = _given_by_environment()
        if not given and not metadata:
            return PLAIN_OPTIONS
        for raw_key, raw_value in (metadata or {}).items():
            key, value = _text(raw_key), _text(raw_value)
            if key == PACKED_KEY_BEFORE_2_1:
                given["packed"] = value.lower() == "true"
                continue
            name = key.removeprefix(PREFIX).replace("-", "_")
            parse = _PARSERS.get(name)
            if not key.startswith(PREFIX) or parse is None:
                continue
            try:
                given[name] = parse(value)
            except ValueError as error:
                raise InvalidInputError(
                    f"the field's metadata ask for something the writer cannot do: {error}",
                    field=field_name,
                    key=key,
                    value=value,
                ) from error
        return EncodingOptions(**given)


PLAIN_OPTIONS: Final = EncodingOptions()
"""Nobody asks for anything."""


def _given_by_environment() -> dict[str, Any]:
    """Return the options that the process has other defaults for."""
    given: dict[str, Any] = {}
    for variable, (name, parse) in _VARIABLES.items():
        value = os.environ.get(variable)
        if value is None:
            continue
        try:
            given[name] = parse(value)
        except ValueError as error:
            raise InvalidInputError(
                f"an environment variable asks for something the writer cannot do: {error}",
                variable=variable,
                value=value,
            ) from error
    return given


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_Choice = TypeVar("_Choice", bound=Enum)


def _one_of(kind: type[_Choice], *allowed: _Choice) -> Callable[[str], _Choice]:
    def parse(value: str) -> _Choice:
        wanted = value.strip().lower()
        for choice in allowed or tuple(kind):
            if choice.value == wanted:
                return choice
        names = ", ".join(str(choice.value) for choice in allowed or tuple(kind))
        raise ValueError(f"expected one of {names}")

    return parse


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("expected an integer") from None
        if not least <= number <= most:
            raise ValueError(f"expected a number from {least} to {most}")
        return number

    return parse


def _share(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("expected a number from 0 to 1") from None
    if not 0.0 <= number <= 1.0:
        raise ValueError("expected a number from 0 to 1")
    return number


def _is_true(value: str) -> bool:
    return value.strip().lower() in {"true", "1", "yes"}


_GENERAL: Final = (Compression.NONE, Compression.LZ4, Compression.ZSTD)
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "compression": _one_of(Compression),
    "compression_level": _integer(-131072, 22),
    "rle_threshold": _share,
    "bss": _one_of(ByteStreamSplitMode),
    "dict_divisor": _integer(1, 1 << 62),
    "dict_size_ratio": _share,
    "dict_max_size": _integer(0, (1 << 31) - 1),
    "dict_values_compression": _one_of(Compression, *_GENERAL),
    "dict_values_compression_level": _integer(-131072, 22),
    "structural_encoding": _one_of(StructuralEncoding),
    "minichunk_size": _integer(1, 1 << 30),
    "packed": _is_true,
    "blob": _is_true,
    "blob_inline_size_threshold": _integer(0, 1 << 62),
    "blob_dedicated_size_threshold": _integer(0, 1 << 62),
    "blob_pack_file_size_threshold": _integer(1, 1 << 62),
}
_VARIABLES: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "LANCE_ENCODING_DICT_TOO_SMALL": ("dict_too_small", _integer(0, 1 << 62)),
    "LANCE_ENCODING_DICT_DIVISOR": ("dict_divisor", _PARSERS["dict_divisor"]),
    "LANCE_ENCODING_DICT_MAX_CARDINALITY": ("dict_max_size", _PARSERS["dict_max_size"]),
    "LANCE_ENCODING_DICT_SIZE_RATIO": ("dict_size_ratio", _share),
}
"""The variables of the reference that change defaults; what a field's metadata ask for wins."""

assert {*_PARSERS, "dict_too_small"} == {field.name for field in fields(EncodingOptions)}, (
    "a key has no parser"
)

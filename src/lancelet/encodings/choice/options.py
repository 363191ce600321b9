"""Encoding options in the metadata of a field.

    {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "9"}
    -> EncodingOptions(compression=Compression.ZSTD, compression_level=9)

Without a key, the writer decides by measurement (`choose`). A key always takes precedence over
measurements; an invalid value raises an error with the field name and never falls back to a
default. Keys for other parts of the writer (`blob`, index hints) are parsed here as well.
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
    """A general compression, or FSST for strings."""

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
    """The layout of values and nesting in a page."""

    MINI_BLOCK = "miniblock"
    FULL_ZIP = "fullzip"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """Encoding options of one field; `None` leaves the decision to the writer."""

    compression: Compression | None = None
    """General compression of the values, or `none` to forbid it."""
    compression_level: int | None = None
    """Level of zstd."""
    rle_threshold: float | None = None
    """Use run-length encoding if runs are fewer than this share of the values; 0 disables it."""
    bss: ByteStreamSplitMode = ByteStreamSplitMode.AUTO
    """Byte stream split."""
    dict_too_small: int = 100
    """Minimum number of values for a dictionary."""
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
    """Target size of chunks of variable-width values, in bytes."""
    packed: bool = False
    """Store a struct row by row."""
    blob: bool = False
    """Store values out of line."""
    blob_inline_size_threshold: int | None = None
    """Maximum size of a blob in the data file, in bytes."""
    blob_dedicated_size_threshold: int | None = None
    """Maximum size of a blob in a shared sidecar, in bytes; larger blobs get a dedicated one."""
    blob_pack_file_size_threshold: int | None = None
    """Maximum size of a shared sidecar, in bytes."""

    @staticmethod
    def from_metadata(
        field_name: str, metadata: Mapping[bytes, bytes] | Mapping[str, str] | None
    ) -> EncodingOptions:
        """Parse the options of a field; raises `InvalidInputError` for an invalid value.

        >>> EncodingOptions.from_metadata("x", {"lance-encoding:compression": "zstd"}).compression
        <Compression.ZSTD: 'zstd'>
        """
        given: dict[str, Any] = _environment_defaults()
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
                    f"invalid encoding option in the field metadata: {error}",
                    field=field_name,
                    key=key,
                    value=value,
                ) from error
        return EncodingOptions(**given)


PLAIN_OPTIONS: Final = EncodingOptions()
"""Options without any request."""


def _environment_defaults() -> dict[str, Any]:
    """Return the defaults set by environment variables."""
    given: dict[str, Any] = {}
    for variable, (name, parse) in _VARIABLES.items():
        value = os.environ.get(variable)
        if value is None:
            continue
        try:
            given[name] = parse(value)
        except ValueError as error:
            raise InvalidInputError(
                f"invalid encoding option in an environment variable: {error}",
                variable=variable,
                value=value,
            ) from error
    return given


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_Choice = TypeVar("_Choice", bound=Enum)


def _enum_parser(kind: type[_Choice], *allowed: _Choice) -> Callable[[str], _Choice]:
    def parse(value: str) -> _Choice:
        normalized = value.strip().lower()
        for choice in allowed or tuple(kind):
            if choice.value == normalized:
                return choice
        names = ", ".join(str(choice.value) for choice in allowed or tuple(kind))
        raise ValueError(f"expected one of {names}")

    return parse


def _integer(lower: int, upper: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("expected an integer") from None
        if not lower <= number <= upper:
            raise ValueError(f"expected a number from {lower} to {upper}")
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
    "compression": _enum_parser(Compression),
    "compression_level": _integer(-131072, 22),
    "rle_threshold": _share,
    "bss": _enum_parser(ByteStreamSplitMode),
    "dict_divisor": _integer(1, 1 << 62),
    "dict_size_ratio": _share,
    "dict_max_size": _integer(0, (1 << 31) - 1),
    "dict_values_compression": _enum_parser(Compression, *_GENERAL),
    "dict_values_compression_level": _integer(-131072, 22),
    "structural_encoding": _enum_parser(StructuralEncoding),
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
"""The reference's environment variables for defaults; field metadata takes precedence."""

assert {*_PARSERS, "dict_too_small"} == {field.name for field in fields(EncodingOptions)}, (
    "a key has no parser"
)

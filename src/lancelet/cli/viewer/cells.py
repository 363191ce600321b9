r"""What a page gets of a value: short enough to show, with what says how to show it.

7                       {"number": "7"}          too large for a script's numbers as well
[0.1, 0.2]  (vector)    {"vector": [0.1, 0.2]}
b"\x89PNG..."           {"image": "image/png", "bytes": 5120}
{"a": 1}                {"json": "{\"a\": 1}"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from lancelet.cli.output import cell_text, json_value

TEXT_MAX: Final = 2_000
VECTOR_MAX: Final = 256
PREVIEW_BYTES: Final = 32

_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def image_type(value: bytes) -> str | None:
    r"""Return the media type of an image that browsers show, by its first bytes.

    >>> image_type(b"\xff\xd8\xff\xe0"), image_type(b"text")
    ('image/jpeg', None)
    """
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _IMAGES if value.startswith(magic)), None)


def is_vector(data_type: pa.DataType) -> bool:
    """Return whether values are vectors of numbers."""
    if isinstance(data_type, pa.BaseExtensionType):
        return is_vector(data_type.storage_type)
    if not pa.types.is_fixed_size_list(data_type):
        return False
    value = data_type.value_type
    return (
        pa.types.is_floating(value) or pa.types.is_integer(value) or not pa.types.is_nested(value)
    )


def cell(value: Any, data_type: pa.DataType) -> dict[str, Any] | None:
    """Return a value as a page gets it; None is null."""
    match value:
        case None:
            return None
        case bool():
            return {"text": "true" if value else "false"}
        case int() | float() | Decimal():
            return {"number": str(value)}
        case str():
            return _cut(value)
        case bytes():
            return _binary(value)
        case datetime() | date() | time() | timedelta():
            return {"text": cell_text(value)}
        case list() if is_vector(data_type):
            return _vector(value)
    text = json.dumps(value, default=_shown, ensure_ascii=False)
    return {"json": text} if len(text) <= TEXT_MAX else {"json": None, **_cut(text)}


def _binary(value: bytes) -> dict[str, Any]:
    kind = image_type(value)
    if kind is not None:
        return {"image": kind, "bytes": len(value)}
    return {"binary": value[:PREVIEW_BYTES].hex(" "), "bytes": len(value)}


def _vector(value: list[Any]) -> dict[str, Any]:
    # Not every number is one in JSON.
    numbers = [float(each) if _is_finite(each) else None for each in value[:VECTOR_MAX]]
    return {"vector": numbers, "size": len(value)}


def _is_finite(value: Any) -> bool:
    return value is not None and abs(float(value)) < float("inf")


def _cut(text: str) -> dict[str, Any]:
    if len(text) <= TEXT_MAX:
        return {"text": text}
    return {"text": text[:TEXT_MAX], "length": len(text)}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes) and len(value) > PREVIEW_BYTES:
        return f"{len(value)} bytes"
    return dict(value) if isinstance(value, Mapping) else json_value(value)

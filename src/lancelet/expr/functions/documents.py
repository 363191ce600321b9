"""Functions of JSON columns, stored as text or as JSONB.

    json_extract(js, '$.a.b')      the value as JSON text: '"x"', '1', '[1,2]'
    json_get(js, 'a')              a member or an element, as JSONB
    json_get_string, _int, _float, _bool(js, 'a')     the same as an SQL value
    json_exists(js, '$.a')         whether a path matches
    json_array_contains(js, '$.a', 'x'), json_array_length(js, '$.a')

Each distinct document is parsed once, in Python. A value of another type than requested is an
error; JSON null is null.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import pyarrow as pa

from lancelet.encodings.jsonb import documents_from_storage, documents_to_storage
from lancelet.expr.coercion import CoercionError
from lancelet.expr.data_types import is_bytes, is_text
from lancelet.expr.functions.base import Compute, Function, Value, constant, printable, text
from lancelet.expr.functions.json_path import Json, find_values

_ABSENT: Final = object()
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


def _document(data_type: pa.DataType) -> pa.DataType | None:
    if pa.types.is_null(data_type):
        return pa.string()
    return data_type if is_text(data_type) or is_bytes(data_type) else None


def _over_documents(read: Callable[..., Any], name: str, gives: pa.DataType) -> Compute:
    """Return a function of documents and constants, computed once per distinct document."""

    def compute(documents: Value, *arguments: Value) -> Value:
        constants = [constant(argument, name) for argument in arguments]
        if any(each is None for each in constants):
            return pa.scalar(None, gives)
        if isinstance(documents, pa.Scalar):
            return compute(pa.array([documents], documents.type), *arguments)[0]
        encoded = documents.dictionary_encode()
        found = [read(document, *constants) for document in _parsed(encoded.dictionary)]
        return pa.array(found, gives).take(encoded.indices)

    return compute


def _parsed(documents: pa.Array) -> list[Json]:
    texts = documents
    if is_bytes(documents.type):
        texts = documents_from_storage(documents.cast(pa.large_binary())).storage
    try:
        return [json.loads(text) for text in texts.to_pylist()]
    except json.JSONDecodeError as error:
        raise CoercionError(f"not a JSON document: {error}") from error
    except RecursionError as error:
        raise CoercionError("the JSON document is nested too deeply") from error


def print_document(value: Json) -> str:
    """Return the JSON text of a value, as returned by a JSON column.

    >>> print_document({"b": 1e-7, "a": [1.0, None]})
    '{"a":[1.0,null],"b":1e-7}'
    """
    return str(documents_from_storage(_written(value)).storage[0])


def _written(value: Json) -> pa.Array:
    """Return a document in the storage format of JSON columns."""
    return documents_to_storage(pa.array([json.dumps(value)]))


def _extract(document: Json, path: str) -> str | None:
    found = find_values(document, path)
    if not found:
        return None
    return print_document(found[0] if len(found) == 1 else found)


def _exists(document: Json, path: str) -> bool:
    return bool(find_values(document, path))


def _get(document: Json, key: str) -> bytes | None:
    found = _member(document, key)
    return None if found is _ABSENT else _written(found)[0].as_py()


def _member(document: Json, key: str) -> Any:
    if isinstance(document, list):
        return document[int(key)] if key.isdigit() and int(key) < len(document) else _ABSENT
    if isinstance(document, dict) and not key.isdigit():
        return document.get(key, _ABSENT)
    return _ABSENT


def _plain_member(convert: Callable[[Json], Any]) -> Callable[[Json, str], Any]:
    def read(document: Json, key: str) -> Any:
        found = _member(document, key)
        return None if found is _ABSENT or found is None else convert(found)

    return read


def _refusal(value: Json, expected: str) -> CoercionError:
    shown = print_document(value)
    return CoercionError(
        f"the JSON value {shown[:60]} is not a {expected}; json_extract returns its text"
    )


def _as_text(value: Json) -> str:
    if isinstance(value, (list, dict)):
        raise _refusal(value, "string")
    return value if isinstance(value, str) else print_document(value)


def _as_integer(value: Json) -> int:
    if isinstance(value, (bool, int)):
        whole = int(value)
    else:
        whole = int(Decimal(repr(_as_float(value))).quantize(Decimal(1), ROUND_HALF_UP))
    if not -(2**63) <= whole < 2**63:
        raise _refusal(value, "64-bit integer")
    return whole


def _as_float(value: Json) -> float:
    numeric = isinstance(value, str) and _NUMBER.fullmatch(value)
    if value is None or isinstance(value, (list, dict)) or (isinstance(value, str) and not numeric):
        raise _refusal(value, "number")
    found = float(value)
    if not math.isfinite(found):
        raise _refusal(value, "finite number")
    return found


def _to_boolean(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUTHS:
        return _TRUTHS[value.lower()]
    raise _refusal(value, "boolean")


def _array_contains(document: Json, path: str, value: str) -> bool:
    for found in find_values(document, path):
        items = found if isinstance(found, list) else []
        if any(print_document(item) in {value, f'"{value}"'} for item in items):
            return True
    return False


def _array_length(document: Json, path: str) -> int | None:
    found = find_values(document, path)
    if not found:
        return None
    return len(found[0]) if isinstance(found[0], list) else 0


def _getter(name: str, gives: pa.DataType, convert: Callable[[Json], Any]) -> Function:
    compute = _over_documents(_plain_member(convert), "the key of a JSON value", gives)
    return Function((name,), (_document, printable), gives, compute, can_fail=True)


def _by_path(name: str, gives: pa.DataType, read: Callable[..., Any]) -> Function:
    compute = _over_documents(read, "a JSON path", gives)
    return Function((name,), (_document, text), gives, compute, can_fail=True)


JSON_FUNCTIONS: Final = (
    _by_path("json_extract", pa.string(), _extract),
    _by_path("json_exists", pa.bool_(), _exists),
    _by_path("json_array_length", pa.int64(), _array_length),
    Function(
        ("json_array_contains",),
        (_document, text, printable),
        pa.bool_(),
        _over_documents(_array_contains, "a JSON path and a value", pa.bool_()),
        can_fail=True,
    ),
    Function(
        ("json_get",),
        (_document, printable),
        pa.large_binary(),
        _over_documents(_get, "the key of a JSON value", pa.large_binary()),
        can_fail=True,
    ),
    _getter("json_get_string", pa.string(), _as_text),
    _getter("json_get_int", pa.int64(), _as_integer),
    _getter("json_get_float", pa.float64(), _as_float),
    _getter("json_get_bool", pa.bool_(), _to_boolean),
)
"""All functions of JSON documents."""

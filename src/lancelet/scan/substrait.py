"""Read aggregates from Substrait plans that engines push down to a scan.

    Plan -> relations[0] -> root.input -> aggregate
            groupings      fields of the schema, by index
            measures       functions by number, named by the extensions of the plan

The input of the aggregate is the scan; its description in the plan is ignored. Only a few message
types are needed, so the wire format is decoded without generated classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.scan.aggregate import Aggregate, Measure

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED_64: 8, _FIXED_32: 4}
_DISTINCT: Final = 2
_VARINT_BITS: Final = 64

_Message = dict[int, list[int | bytes]]


class SubstraitError(InvalidInputError):
    """A Substrait plan cannot be read."""


class UnsupportedPlanError(SubstraitError, UnsupportedError):
    """A Substrait plan requires an unsupported feature."""


def read_aggregate(plan: bytes, schema: pa.Schema) -> Aggregate:
    """Return the aggregate of a plan, with columns named by a schema."""
    message = _message(plan)
    functions = dict(_function(each) for each in _messages(message, 2))
    relation = _one(_one(message, 3, "relation"), 2, "root", or_field=1)
    names = tuple(name.decode() for name in relation.get(2, ()) if isinstance(name, bytes))
    aggregate = _one(_one(relation, 1, "input") if 1 in relation else relation, 4, "aggregate")
    groups = _groups(aggregate, schema.names)
    measures = tuple(_measure(each, functions, schema.names) for each in _messages(aggregate, 4))
    if not groups and not measures:
        raise SubstraitError("an aggregate has neither groups nor measures")
    return Aggregate(groups, measures, names)


def _function(extension: _Message) -> tuple[int, str]:
    declared = _one(extension, 3, "function")
    name = declared.get(3, [b""])[0]
    # Names may include argument types: count:any.
    return _number(declared, 2), bytes(name).decode().partition(":")[0]


def _groups(aggregate: _Message, names: Sequence[str]) -> tuple[str, ...]:
    shared = _messages(aggregate, 5)
    found = []
    for grouping in _messages(aggregate, 3):
        if shared:
            found += [shared[index] for index in _field_indices(grouping, len(shared))]
        else:
            found += _messages(grouping, 1)
    return tuple(_field(expression, names) for expression in found)


def _field_indices(grouping: _Message, count: int) -> list[int]:
    indices: list[int] = []
    for each in grouping.get(2, ()):
        position, packed = 0, bytes(each) if isinstance(each, bytes) else None
        if packed is None:
            indices.append(int(each))
            continue
        while position < len(packed):
            number, position = _varint(packed, position)
            indices.append(number)
    if any(index >= count for index in indices):
        raise SubstraitError("a grouping refers to a missing expression", count=count)
    return indices


def _measure(entry: _Message, functions: Mapping[int, str], names: Sequence[str]) -> Measure:
    if 2 in entry:
        raise UnsupportedPlanError("filters of measures are not supported; filter the scan")
    function = _one(entry, 1, "measure")
    number = _number(function, 1)
    if number not in functions:
        raise SubstraitError("Aggregate function not registered", function_anchor=number)
    arguments = [_one(each, 3, "value") for each in _messages(function, 7)]
    if len(arguments) > 1:
        raise UnsupportedPlanError("a measure requires one column", arguments=len(arguments))
    column = _field(arguments[0], names) if arguments else None
    return Measure(functions[number], column, is_distinct=_number(function, 6) == _DISTINCT)


def _field(expression: _Message, names: Sequence[str]) -> str:
    """Return the name of the top-level field that an expression refers to."""
    if 2 not in expression:
        raise UnsupportedPlanError("groups and measures must be columns, not expressions")
    reference = _one(_one(_one(expression, 2, "field"), 1, "reference"), 2, "field of a struct")
    if 2 in reference:
        raise UnsupportedPlanError("groups and measures must be top-level columns")
    number = _number(reference, 1)
    if number >= len(names):
        raise SubstraitError("a plan refers to a missing field", field=number)
    return names[number]


# --- wire format ------------------------------------------------------------------------------


def _one(message: _Message, field: int, name: str, *, or_field: int | None = None) -> _Message:
    for number in (field, or_field):
        found = [] if number is None else _messages(message, number)
        if found:
            return found[0]
    raise SubstraitError(f"the plan has no {name}", field=field)


def _messages(message: _Message, field: int) -> list[_Message]:
    return [_message(each) for each in message.get(field, ()) if isinstance(each, bytes)]


def _number(message: _Message, field: int) -> int:
    found = message.get(field, [0])[-1]
    if isinstance(found, bytes):
        raise SubstraitError("the plan contains bytes instead of a number", field=field)
    return found


def _message(data: bytes) -> _Message:
    """Return the field values of a message by field number."""
    found: _Message = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        field, kind = key >> 3, key & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _varint(data, position)
        elif kind == _BYTES:
            size, position = _varint(data, position)
            value, position = data[position : position + size], position + size
        elif kind in _FIXED:
            value, position = 0, position + _FIXED[kind]
        else:
            raise SubstraitError("failed to decode Protobuf message", position=position)
        if position > len(data):
            raise SubstraitError("failed to decode Protobuf message", position=position)
        found.setdefault(field, []).append(value)
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < _VARINT_BITS:
        byte = data[position]
        number, shift, position = number | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return number, position
    raise SubstraitError("failed to decode Protobuf message", position=position)

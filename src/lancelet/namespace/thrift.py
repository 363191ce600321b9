"""A client of Thrift services: the binary protocol over a plain connection.

    call     80 01 00 01   name   sequence   struct of arguments      80 01: version, 01: a call
    reply    80 01 00 02   name   sequence   struct of the result     field 0, or an exception

A struct is a dict of fields by number. A field has its kind, so a struct that was read is written
with all fields, including those that this package does not know:

    {1: (Kind.STRING, "orders"), 4: (Kind.I32, 1700000000)}
"""

from __future__ import annotations

import os
import socket
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from threading import Lock
from typing import Any, BinaryIO, Final, TypeAlias

from lance_namespace import ServiceUnavailableError, UnsupportedOperationError

_VERSION: Final = 0x8001
_CALL, _REPLY, _EXCEPTION = 1, 2, 3
_UNKNOWN_METHOD: Final = 1
_STOP: Final = 0
_BYTES_MAX: Final = 1 << 26
_DEPTH_MAX: Final = 64


class Kind(IntEnum):
    """The kinds of values."""

    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    I64 = 10
    STRING = 11
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15


Field: TypeAlias = tuple[Kind, Any]
"""A kind and a content; that of a list is a kind and items, that of a map two kinds and a dict."""

Struct: TypeAlias = dict[int, Field]

_FORMATS: Final[Mapping[Kind, struct.Struct]] = {
    Kind.BOOL: struct.Struct(">?"),
    Kind.BYTE: struct.Struct(">b"),
    Kind.DOUBLE: struct.Struct(">d"),
    Kind.I16: struct.Struct(">h"),
    Kind.I32: struct.Struct(">i"),
    Kind.I64: struct.Struct(">q"),
}


class ThriftError(Exception):
    """Bytes are not those of the protocol."""


class LostReplyError(Exception):
    """A connection ended after a call was sent, so its outcome is unknown."""


def text(value: str) -> Field:
    """Return a string field."""
    return Kind.STRING, value


def flag(*, value: bool) -> Field:
    """Return a boolean field."""
    return Kind.BOOL, value


def record(fields: Struct) -> Field:
    """Return a struct field."""
    return Kind.STRUCT, fields


def texts(values: Sequence[str]) -> Field:
    """Return a list field of strings."""
    return Kind.LIST, (Kind.STRING, list(values))


def text_map(values: Mapping[str, str]) -> Field:
    """Return a map field of strings."""
    return Kind.MAP, (Kind.STRING, Kind.STRING, dict(values))


def content_of(fields: Struct, number: int, default: Any = None) -> Any:
    """Return the content of a field: its items if it is a list, its dict if it is a map.

    >>> content_of({1: texts(["a"]), 2: text_map({"b": "c"})}, 1)
    ['a']
    """
    kind, content = fields.get(number, (Kind.STRING, default))
    return content[-1] if kind in {Kind.LIST, Kind.SET, Kind.MAP} else content


def write_struct(fields: Struct) -> bytes:
    """Return the bytes of a struct.

    >>> write_struct({1: text("ab")}).hex(" ")
    '0b 00 01 00 00 00 02 61 62 00'
    """
    written = bytearray()
    _write(written, Kind.STRUCT, fields)
    return bytes(written)


def read_struct(source: BinaryIO) -> Struct:
    """Read a struct.

    >>> import io
    >>> read_struct(io.BytesIO(write_struct({1: text("ab")})))
    {1: (<Kind.STRING: 11>, 'ab')}
    """
    found: Struct = _read(source, Kind.STRUCT, 0)
    return found


def write_message(kind: int, name: str, sequence: int, fields: Struct) -> bytes:
    """Return the bytes of a call or a reply."""
    encoded = name.encode()
    head = struct.pack(">HHi", _VERSION, kind, len(encoded)) + encoded
    return head + struct.pack(">i", sequence) + write_struct(fields)


def read_message(source: BinaryIO) -> tuple[int, str, int, Struct]:
    """Read the kind, the name, the sequence number and the struct of a call or a reply."""
    version, kind = struct.unpack(">HH", _exactly(source, 4))
    if version != _VERSION:
        raise ThriftError("the peer does not use the Thrift binary protocol")
    name = _read(source, Kind.STRING, 0)
    return kind, name, _read(source, Kind.I32, 0), read_struct(source)


class ThriftClient:
    """Sends calls to a service, over connections that are used again."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        *,
        seconds: float,
        idle_max: int,
        greeting: Callable[[ThriftConnection], object],
    ) -> None:
        """Use a service; `greeting` is called with each new connection."""
        self._addresses = addresses
        self._seconds = seconds
        self._idle_max = idle_max
        self._greeting = greeting
        self._idle: list[ThriftConnection] = []
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._idle)

    def call(self, name: str, arguments: Struct, *, repeats: bool) -> Struct:
        """Return the struct of the result; a lost call is sent again only if `repeats`.

        Raises:
            LostReplyError: The connection ended after the call was sent.
            ServiceUnavailableError: The service cannot be reached.
            UnsupportedOperationError: The service has no such method.
        """
        try:
            return self._call_once(name, arguments)
        except LostReplyError as error:
            if not repeats or isinstance(error.__cause__, TimeoutError):
                raise
        return self._call_once(name, arguments)

    def _call_once(self, name: str, arguments: Struct) -> Struct:
        connection = self._connection()
        try:
            found = connection.call(name, arguments)
        except BaseException as error:
            connection.close()
            if isinstance(error, (OSError, EOFError, ThriftError)):
                raise LostReplyError(f"{type(error).__name__}: {error}") from error
            raise
        with self._lock:
            if len(self._idle) < self._idle_max:
                self._idle.append(connection)
                return found
        connection.close()
        return found

    def _connection(self) -> ThriftConnection:
        """Return an idle connection that the service has not closed, or a new one."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        failure: Exception | None = None
        for address in self._addresses:
            try:
                connection = ThriftConnection(address, self._seconds)
            except OSError as error:
                failure = error
                continue
            try:
                self._greeting(connection)
            except (OSError, EOFError, ThriftError) as error:
                connection.close()
                failure = error
                continue
            return connection
        shown = ", ".join(f"{host}:{port}" for host, port in self._addresses)
        raise ServiceUnavailableError(
            f"cannot connect to {shown}: {failure}; check the address and the network"
        ) from failure


class ThriftConnection:
    """A connection to a service."""

    def __init__(self, address: tuple[str, int], seconds: float) -> None:
        """Connect."""
        self._seconds = seconds
        self._socket = socket.create_connection(address, timeout=seconds)
        self._source = self._socket.makefile("rb")
        self._sequence = 0
        self._process = os.getpid()

    def call(self, name: str, arguments: Struct) -> Struct:
        """Send a call and return the struct of its reply."""
        self._sequence += 1
        self._socket.sendall(write_message(_CALL, name, self._sequence, arguments))
        kind, answered, sequence, found = read_message(self._source)
        if (answered, sequence) != (name, self._sequence) or kind not in {_REPLY, _EXCEPTION}:
            raise ThriftError(f"the reply to {name} is that of another call")
        if kind == _EXCEPTION:
            message = f"the service refused {name}: {content_of(found, 1)}"
            if content_of(found, 2) == _UNKNOWN_METHOD:
                raise UnsupportedOperationError(f"Unsupported: {message}")
            raise ServiceUnavailableError(message)
        return found

    def is_usable(self) -> bool:
        """Return whether the connection is open, and no other process uses it."""
        if self._process != os.getpid():
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)  # returns at once if it was closed
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(self._seconds)
        return False

    def close(self) -> None:
        """Close the connection."""
        self._source.close()
        self._socket.close()


def _close_all(connections: list[ThriftConnection]) -> None:
    for connection in connections:
        connection.close()


def _write(target: bytearray, kind: Kind, content: Any) -> None:
    match kind:
        case Kind.STRING:
            encoded = content.encode(errors="surrogateescape")
            target += struct.pack(">i", len(encoded)) + encoded
        case Kind.STRUCT:
            for number, (field_kind, value) in content.items():
                target += struct.pack(">bh", field_kind, number)
                _write(target, field_kind, value)
            target.append(_STOP)
        case Kind.LIST | Kind.SET:
            item_kind, items = content
            target += struct.pack(">bi", item_kind, len(items))
            for item in items:
                _write(target, item_kind, item)
        case Kind.MAP:
            key_kind, value_kind, pairs = content
            target += struct.pack(">bbi", key_kind, value_kind, len(pairs))
            for key, value in pairs.items():
                _write(target, key_kind, key)
                _write(target, value_kind, value)
        case _:
            target += _FORMATS[kind].pack(content)


def _read(source: BinaryIO, kind: Kind, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise ThriftError("values are nested too deeply")
    match kind:
        case Kind.STRING:
            return _exactly(source, _count(source)).decode(errors="surrogateescape")
        case Kind.STRUCT:
            fields: Struct = {}
            while code := _exactly(source, 1)[0]:
                (number,) = struct.unpack(">h", _exactly(source, 2))
                field_kind = _kind(code)
                fields[number] = (field_kind, _read(source, field_kind, depth + 1))
            return fields
        case Kind.LIST | Kind.SET:
            code, count = _exactly(source, 1)[0], _count(source)
            if not count:
                return Kind(code) if code in _KINDS else Kind.STRING, []
            item_kind = _kind(code)
            return item_kind, [_read(source, item_kind, depth + 1) for _ in range(count)]
        case Kind.MAP:
            codes, count = _exactly(source, 2), _count(source)
            if not count:
                return Kind.STRING, Kind.STRING, {}
            key_kind, value_kind = map(_kind, codes)
            pairs = {}
            for _ in range(count):
                key = _read(source, key_kind, depth + 1)
                pairs[key] = _read(source, value_kind, depth + 1)
            return key_kind, value_kind, pairs
    form = _FORMATS[kind]
    return form.unpack(_exactly(source, form.size))[0]


_KINDS: Final = frozenset(Kind)


def _kind(code: int) -> Kind:
    if code not in _KINDS:
        raise ThriftError(f"unknown kind of value: {code}")
    return Kind(code)


def _count(source: BinaryIO) -> int:
    count: int = struct.unpack(">i", _exactly(source, 4))[0]
    if not 0 <= count <= _BYTES_MAX:
        raise ThriftError(f"a size is out of bounds: {count}")
    return count


def _exactly(source: BinaryIO, size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError("the connection was closed within a message")
    return found

"""Transactions: an operation, the version it is based on, and a unique id.

The same message is stored as a file in `_transactions` and as a section of the manifest file. A
writer that receives no response for a commit identifies it by the id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from lancelet.format.operation import Operation, UnknownOperation
from lancelet.format.operation_parse import operation_from_proto
from lancelet.format.operation_render import operation_to_proto
from lancelet.format.paths import transaction_file_name
from lancelet.format.protos import transaction_pb
from lancelet.format.wire import parse_message, render_message, unknown_fields
from lancelet.values import dataclass

COMMIT_MESSAGE_KEY: Final = "__lance_commit_message"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A change and the version it is based on."""

    read_version: int
    uuid: str
    operation: Operation
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    tag: str = ""
    unknown: bytes = b""

    @property
    def file_name(self) -> str:
        """The name of the transaction file."""
        return transaction_file_name(self.read_version, self.uuid)

    @property
    def commit_message(self) -> str | None:
        """The commit message, or None."""
        return self.properties.get(COMMIT_MESSAGE_KEY)

    @staticmethod
    def parse(data: bytes | memoryview) -> Transaction:
        """Parse a serialized transaction.

        >>> Transaction.parse(bytes.fromhex("0803d206 020805")).operation
        Restore(version=5)
        """
        proto = parse_message(transaction_pb.Transaction, data)
        unknown = unknown_fields(proto)
        operation = operation_from_proto(proto)
        if operation is None:
            operation, unknown = UnknownOperation(unknown), b""
        return Transaction(
            read_version=proto.read_version,
            uuid=proto.uuid,
            operation=operation,
            properties=dict(proto.transaction_properties),
            tag=proto.tag,
            unknown=unknown,
        )

    def render(self) -> bytes:
        """Serialize the transaction."""
        proto = transaction_pb.Transaction(
            read_version=self.read_version,
            uuid=self.uuid,
            tag=self.tag,
            transaction_properties=self.properties,
        )
        if isinstance(self.operation, UnknownOperation):
            return render_message(proto) + self.operation.wire + self.unknown
        operation_to_proto(self.operation, proto)
        return render_message(proto) + self.unknown

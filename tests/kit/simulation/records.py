"""An external manifest store whose requests are steps of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lancelet.errors import AlreadyExistsError
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import Request
from lancelet.table.handlers.external import ManifestRecord, ManifestRecords
from tests.kit.simulation.judge import BUCKET

if TYPE_CHECKING:
    from tests.kit.simulation.machine import Machine

T = TypeVar("T")


class SimulatedRecords(ManifestRecords):
    """An external manifest store in memory whose requests are steps of a history."""

    def __init__(self, machine: Machine) -> None:
        """Start without records."""
        self._machine = machine
        self._rows: dict[tuple[str, int], ManifestRecord] = {}

    def latest(self, table: str) -> ManifestRecord | None:
        """Return the record of the latest version of a table."""
        return self._request("list", "", lambda: max(self._of(table), key=_version, default=None))

    def get(self, table: str, version: int) -> ManifestRecord | None:
        """Return the record of a version."""
        return self._request("read", f"{table}/{version}", lambda: self._rows.get((table, version)))

    def put_if_absent(self, table: str, record: ManifestRecord) -> None:
        """Record a version that has no record yet."""

        def put() -> None:
            if self._rows.setdefault((table, record.version), record) is not record:
                raise AlreadyExistsError("recorded", path=record.path)

        self._request("put_if_absent", f"{table}/{record.version}", put)

    def update(self, table: str, record: ManifestRecord) -> None:
        """Replace the record of a version."""

        def put() -> None:
            self._rows[table, record.version] = record

        self._request("put", f"{table}/{record.version}", put)

    def every(self, table: str) -> list[ManifestRecord]:
        """Return the records of all versions of a table."""
        return self._request("list", "", lambda: self._of(table))

    def forget(self, table: str, record: ManifestRecord) -> None:
        """Delete the record of a version."""
        key = (table, record.version)
        self._request("delete", f"{table}/{record.version}", lambda: self._rows.pop(key, None))

    def _of(self, table: str) -> list[ManifestRecord]:
        return [record for (name, _), record in sorted(self._rows.items()) if name == table]

    def _request(self, operation: str, key: str, action: Callable[[], T]) -> T:
        # The rows are stored with the objects, so they are part of a state of the search.
        def act_and_store() -> T:
            found = action()
            MemoryStore(BUCKET).put("database", repr(sorted(self._rows.items())).encode())
            return found

        return self._machine.request(Request(operation, f"database/{key}"), act_and_store)


def _version(record: ManifestRecord) -> int:
    return record.version

"""Commit handlers, which publish versions and resolve races between writers.

Database drivers are imported on demand.
"""

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand
from lancelet.table.handlers.base import (
    CommitHandler,
    CommitLock,
    PutIfAbsent,
    RenameIfAbsent,
    UserLock,
)
from lancelet.table.handlers.choose import handler_of
from lancelet.table.handlers.external import ExternalStore, ManifestRecord, ManifestRecords

if TYPE_CHECKING:
    from lancelet.table.handlers import dynamodb, postgres, sqlite  # noqa: TC004 - on demand

__all__ = [
    "CommitHandler",
    "CommitLock",
    "ExternalStore",
    "ManifestRecord",
    "ManifestRecords",
    "PutIfAbsent",
    "RenameIfAbsent",
    "UserLock",
    "dynamodb",
    "handler_of",
    "postgres",
    "sqlite",
]

import_on_demand(__name__, {})

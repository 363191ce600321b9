"""Making a version appear: the ways of deciding a race for it, and of finding what was decided."""

from lancelet.table.handlers.base import CommitHandler, CommitLock
from lancelet.table.handlers.choose import handler_of
from lancelet.table.handlers.direct import PutIfAbsent, RenameIfAbsent, UserLock
from lancelet.table.handlers.external import ExternalStore, ManifestRecord, ManifestRecords

__all__ = [
    "CommitHandler",
    "CommitLock",
    "ExternalStore",
    "ManifestRecord",
    "ManifestRecords",
    "PutIfAbsent",
    "RenameIfAbsent",
    "UserLock",
    "handler_of",
]

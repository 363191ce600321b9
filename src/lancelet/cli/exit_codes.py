"""Exit codes of the command, for scripts.

0    OK
1    findings: check found errors, or versions differ
2    the arguments are invalid
3    a table, version or other object does not exist
4    data is corrupt
5    the storage refused a request or did not respond
6    a concurrent commit conflicts
7    this release or installation does not support the operation
8    the name already exists
70   internal error
130  interrupted by the user
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lancelet import errors


class ExitCode(IntEnum):
    """Exit codes; see the module docstring."""

    DONE = 0
    FOUND = 1
    USAGE = 2
    NOT_FOUND = 3
    CORRUPT = 4
    STORAGE = 5
    CONFLICT = 6
    UNSUPPORTED = 7
    EXISTS = 8
    BUG = 70
    STOPPED = 130


_OF_ERRORS: Final = (
    (errors.FieldNotFoundError, ExitCode.USAGE),
    (errors.NotFoundError, ExitCode.NOT_FOUND),
    (errors.AlreadyExistsError, ExitCode.EXISTS),
    (errors.CorruptDataError, ExitCode.CORRUPT),
    (errors.CommitError, ExitCode.CONFLICT),
    (errors.StorageError, ExitCode.STORAGE),
    (errors.UnsupportedError, ExitCode.UNSUPPORTED),
    (errors.InternalError, ExitCode.BUG),
    (errors.InvalidInputError, ExitCode.USAGE),
)
"""The first match counts, because an error can have several base classes."""


def exit_code_of(error: errors.LanceletError) -> ExitCode:
    """Return the exit code for an error.

    >>> exit_code_of(errors.VersionNotFoundError("gone"))
    <ExitCode.NOT_FOUND: 3>
    """
    found = (code for kind, code in _OF_ERRORS if isinstance(error, kind))
    return next(found, ExitCode.STORAGE if isinstance(error, OSError) else ExitCode.USAGE)

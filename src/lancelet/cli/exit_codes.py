"""What the exit code of the command says, for scripts.

0    OK
1    findings: check found errors, or versions differ
2    the call is wrong
3    what was named does not exist
4    bytes are not what the format allows
5    the storage refused or did not answer
6    a concurrent commit conflicts
7    this release or installation cannot do it
8    the name is taken
70   internal error
130  stopped by the user
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lancelet import errors


class ExitCode(IntEnum):
    """See the top of the module."""

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
    (errors.NotFoundError, ExitCode.NOT_FOUND),
    (errors.AlreadyExistsError, ExitCode.EXISTS),
    (errors.CorruptDataError, ExitCode.CORRUPT),
    (errors.CommitError, ExitCode.CONFLICT),
    (errors.StorageError, ExitCode.STORAGE),
    (errors.UnsupportedError, ExitCode.UNSUPPORTED),
    (errors.InternalError, ExitCode.BUG),
    (errors.InvalidInputError, ExitCode.USAGE),
)
"""The first that fits counts: an error may be of several kinds."""


def exit_code_of(error: errors.LanceletError) -> ExitCode:
    """Return the exit code that an error ends the command with.

    >>> exit_code_of(errors.VersionNotFoundError("gone"))
    <ExitCode.NOT_FOUND: 3>
    """
    found = (code for kind, code in _OF_ERRORS if isinstance(error, kind))
    return next(found, ExitCode.STORAGE if isinstance(error, OSError) else ExitCode.USAGE)

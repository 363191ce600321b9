"""All errors of lancelet, with one class per required reaction of the caller.

Facts are keyword arguments: they are printed after the message, code can read them, and they
survive pickling, since Spark sends errors from executors to the driver.

    >>> error = CorruptDataError("the footer is truncated", path="a.lance", file_bytes=12)
    >>> str(error)
    "the footer is truncated (path='a.lance', file_bytes=12)"
    >>> error.facts["path"]
    'a.lance'

Each class derives from the built-in exception that pylance raises.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

_USER_INFO: Final = re.compile(
    r"""//[^\s'"/@]*:(?!\d+/)[^\s'"]*@  # passwords may contain unencoded slashes
      | //[^\s/?#'"]*@""",
    re.VERBOSE,
)
_NAMED_SECRET: Final = re.compile(
    r"""(?P<name>\b(?:[\w.-]*(?:password|passwd|pwd|secret|-signature|-credential|_token|apikey
        |api_key|account_key|access_key|sas_key|authorization)|sig|token)\s*=\s*)
        (?:'[^']*'|"[^"]*"|[^\s&;,'")]+)""",
    re.VERBOSE | re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Remove credentials from URIs and connection strings in a text.

    >>> redacted("postgresql://ann:pw@host/db?sslpassword=x&sslmode=off")
    'postgresql://***@host/db?sslpassword=***&sslmode=off'
    """
    if "@" not in text and "=" not in text:
        return text
    return _NAMED_SECRET.sub(r"\g<name>***", _USER_INFO.sub("//***@", text))


def _redacted_fact(value: object) -> object:
    match value:
        case str():
            return redacted(value)
        case list() | tuple() if type(value) in {list, tuple}:
            return type(value)(map(_redacted_fact, value))
        case dict() if type(value) is dict:
            return {name: _redacted_fact(each) for name, each in value.items()}
    return value


def _redact_chain(error: BaseException | None) -> None:
    """Redact chained errors of libraries; their messages may contain credentials."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and not isinstance(error, LanceletError):
        seen.add(id(error))
        found = tuple(map(_redacted_fact, error.args))
        if found != error.args:
            error.args = found
        error = error.__cause__ or error.__context__


class LanceletError(Exception):
    """The base class of all errors raised by lancelet."""

    message: str
    facts: dict[str, object]

    def __init__(self, message: str = "", /, **facts: object) -> None:
        """Create an error with a message and `facts`, such as the path and the expected value.

        Credentials are redacted, also in the error being handled, which becomes the cause.
        """
        message = redacted(message)
        super().__init__(message)
        self.message = message
        self.facts = {name: _redacted_fact(value) for name, value in facts.items()}
        _redact_chain(sys.exception())

    def add_note(self, note: str, /) -> None:
        """Add a note, without credentials."""
        super().add_note(redacted(note))

    def __str__(self) -> str:
        """Return the message followed by the facts."""
        if not self.facts:
            return self.message
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.message} ({facts})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the class, message and facts, independent of the built-in base class."""
        notes = getattr(self, "__notes__", None)
        return (_rebuild, (type(self), self.message, self.facts, notes))

    def with_facts(self, **facts: object) -> Self:
        """Add facts of an outer scope, such as the path, and return the error.

        Existing facts take precedence, since they are closer to the cause.
        """
        added = {name: _redacted_fact(value) for name, value in facts.items()}
        self.facts = {**added, **self.facts}
        return self


@contextmanager
def corrupt_within(**facts: object) -> Iterator[None]:
    """Add facts, such as the path, to corruption errors raised in the `with` block.

    >>> with corrupt_within(path="a.json"):
    ...     raise CorruptDataError("not valid JSON")
    Traceback (most recent call last):
    lancelet.errors.CorruptDataError: not valid JSON (path='a.json')
    """
    try:
        yield
    except CorruptDataError as error:
        error.with_facts(**facts)
        raise


def similar_names(name: str, names: Sequence[str]) -> str:
    """Return a suggestion of similar names, or an empty string.

    >>> similar_names("lowr", ["lower", "upper"])
    '; did you mean lower?'
    """
    import difflib  # noqa: PLC0415 - needed for errors only

    spelled = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"; did you mean {spelled[close[0]]}?" if close else ""


def _rebuild(
    kind: type[LanceletError], message: str, facts: dict[str, object], notes: list[str] | None
) -> LanceletError:
    error = kind(message, **facts)
    for note in notes or ():
        error.add_note(note)
    return error


class InvalidInputError(LanceletError, ValueError):
    """An argument is invalid; correct the call."""


class SchemaMismatchError(InvalidInputError):
    """Data does not match the schema of the table or file; the message shows the difference."""


class ColumnFunctionError(InvalidInputError):
    """The function of a computed column is missing, or returned unsuitable values."""


class ViewFunctionError(InvalidInputError):
    """A Python function of a view is missing, or returned unsuitable values."""


class ExpressionError(InvalidInputError, OSError):
    """A filter or projection is invalid; the message contains the position.

    pylance raises a `ValueError` or an `OSError`, depending on the call.
    """

    def __str__(self) -> str:
        """Return the message with the prefix of pylance."""
        return f"Invalid user input: {super().__str__()}"


class NotFoundError(LanceletError, LookupError):
    """A requested object does not exist; check the name."""


class DatasetNotFoundError(NotFoundError, FileNotFoundError, ValueError):
    """The path contains no dataset."""


class ObjectNotFoundError(NotFoundError, FileNotFoundError, ValueError):
    """The store contains no object of this name."""


class VersionNotFoundError(NotFoundError, OSError, ValueError):
    """The version does not exist or was cleaned up."""


class VersionRemovedError(VersionNotFoundError, ObjectNotFoundError):
    """The version was cleaned up during a read; open an existing version."""


class RefNotFoundError(NotFoundError, ValueError, OSError):
    """The tag or branch does not exist."""


class IndexNotFoundError(NotFoundError, ValueError):
    """The index does not exist."""


class FieldNotFoundError(NotFoundError, ValueError):
    """The column does not exist."""


class AlreadyExistsError(LanceletError, FileExistsError):
    """The name already exists; choose another name or mode."""


class UnsupportedError(LanceletError, NotImplementedError):
    """This release does not support a flag, version, type or codec; see the message."""


class ArrayOverflowError(UnsupportedError, OverflowError):
    """The rows exceed the 32-bit offsets of one Arrow array; read fewer rows at a time."""


class CorruptDataError(LanceletError, OSError):
    """Stored data violates the format; restore the object."""


class StorageError(LanceletError, OSError):
    """The store refused a request; check access."""


class StorageUnavailableError(StorageError):
    """The store did not respond in time or is overloaded; a retry may succeed."""


class CommitError(LanceletError, OSError):
    """A new version was not published."""


class CommitConflictError(CommitError):
    """A concurrent commit made conflicting changes; recompute from the latest version."""

    def __init__(self, message: str = "", retryable: bool | None = None, **facts: object) -> None:
        """Describe the conflict; commit locks of users may raise it without a message."""
        if retryable is not None:
            facts["retryable"] = retryable
        super().__init__(message or "CommitConflictError: another writer was first", **facts)

    @property
    def retryable(self) -> bool:
        """Whether recomputing from the latest version can succeed."""
        return bool(self.facts.get("retryable", True))


class CommitContentionError(CommitError):
    """All attempts to commit lost the race for a version, without a conflict; try again later."""


class CommittedFilesMissingError(CommitError):
    """Files of a commit were deleted before it was acknowledged; see the message."""


class CommitOutcomeUnknownError(CommitError):
    """The response of the store was lost; search for the transaction id before a retry."""


class MemoryLimitError(LanceletError, MemoryError):
    """The work exceeds the allowed or available memory; process smaller parts."""


class CancelledError(LanceletError, RuntimeError):
    """The caller cancelled the work."""


class InternalError(LanceletError, RuntimeError):
    """An internal invariant was violated; please report it."""

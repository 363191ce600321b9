"""Every error that lancelet raises, one class per thing a caller would do about it.

Facts travel as keyword arguments: they print behind the message, code can read them, and they
survive pickling, since Spark carries errors from executors to the driver.

    >>> error = CorruptDataError("the footer is cut short", path="a.lance", file_bytes=12)
    >>> str(error)
    "the footer is cut short (path='a.lance', file_bytes=12)"
    >>> error.facts["path"]
    'a.lance'

Each class is also the built-in one that a program written for pylance would catch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

_USER_INFO: Final = re.compile(
    r"""//[^\s'"/@]*:(?!\d+/)[^\s'"]*@  # a password may have slashes if nobody encoded it
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
    """Return a text without the credentials of URIs and connection strings in it.

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
    """Redact errors of libraries, whose texts quote what they were given."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and not isinstance(error, LanceletError):
        seen.add(id(error))
        found = tuple(map(_redacted_fact, error.args))
        if found != error.args:
            error.args = found
        error = error.__cause__ or error.__context__


class LanceletError(Exception):
    """The root of every error raised on purpose by lancelet."""

    message: str
    facts: dict[str, object]

    def __init__(self, message: str = "", /, **facts: object) -> None:
        """Say what happened and what to do; `facts` are where, expected and found.

        Credentials are redacted, also in the error that is being handled, which becomes the cause.
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
        """Return the message with its facts behind it."""
        if not self.facts:
            return self.message
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.message} ({facts})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by class, message and facts, whatever the built-in base would do."""
        notes = getattr(self, "__notes__", None)
        return (_rebuild, (type(self), self.message, self.facts, notes))

    def with_facts(self, **facts: object) -> Self:
        """Add facts that the raiser could not know, such as the path, and return the error.

        A fact that is already there stays, since the raiser was nearer to the fault.
        """
        added = {name: _redacted_fact(value) for name, value in facts.items()}
        self.facts = {**added, **self.facts}
        return self


@contextmanager
def corrupt_within(**facts: object) -> Iterator[None]:
    """Add facts to what is found corrupt inside, such as the path of what is read.

    >>> with corrupt_within(path="a.json"):
    ...     raise CorruptDataError("there is no JSON")
    Traceback (most recent call last):
    lancelet.errors.CorruptDataError: there is no JSON (path='a.json')
    """
    try:
        yield
    except CorruptDataError as error:
        error.with_facts(**facts)
        raise


def similar_names(name: str, names: Sequence[str]) -> str:
    """Return a question that suggests names, or nothing.

    >>> similar_names("lowr", ["lower", "upper"])
    '; did you mean lower?'
    """
    import difflib  # noqa: PLC0415 - only who errs waits for it

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
    """An argument is wrong; fix the call."""


class SchemaMismatchError(InvalidInputError):
    """Data do not fit the schema of the table or file; the message shows the difference."""


class ExpressionError(InvalidInputError, OSError):
    """A filter or projection cannot be understood; the message points at the character.

    In the reference implementation it depends on the call whether that is one of values or of
    the system.
    """

    def __str__(self) -> str:
        """Return the message behind the words that the reference begins with."""
        return f"Invalid user input: {super().__str__()}"


class NotFoundError(LanceletError, LookupError):
    """Something that was named does not exist; check the name."""


class DatasetNotFoundError(NotFoundError, FileNotFoundError, ValueError):
    """No dataset lives at the path."""


class ObjectNotFoundError(NotFoundError, FileNotFoundError, ValueError):
    """No object of that name is in the store."""


class VersionNotFoundError(NotFoundError, OSError, ValueError):
    """The version was never committed, or was cleaned up."""


class VersionRemovedError(VersionNotFoundError, ObjectNotFoundError):
    """The version was cleaned up while somebody was reading it; open one that is there."""


class RefNotFoundError(NotFoundError, ValueError, OSError):
    """No tag or branch has that name."""


class IndexNotFoundError(NotFoundError, ValueError):
    """No index has that name."""


class FieldNotFoundError(NotFoundError, ValueError):
    """No column has that name."""


class AlreadyExistsError(LanceletError, FileExistsError):
    """The name is taken; choose another name or another mode."""


class UnsupportedError(LanceletError, NotImplementedError):
    """A flag, version, type or codec that this release does not know; the message names it."""


class ArrayOverflowError(UnsupportedError, OverflowError):
    """The rows do not fit one Arrow array, as its offsets have 32 bits; read fewer at a time."""


class CorruptDataError(LanceletError, OSError):
    """Bytes in storage are not what the format allows; restore the object."""


class StorageError(LanceletError, OSError):
    """The store refused a request; check access."""


class StorageUnavailableError(StorageError):
    """The store did not answer in time, or asked for patience; trying again may work."""


class CommitError(LanceletError, OSError):
    """A new version was not published."""


class CommitConflictError(CommitError):
    """Another transaction changed the same things first; recompute from the latest version."""

    def __init__(self, message: str = "", retryable: bool | None = None, **facts: object) -> None:
        """Say what is in dispute; user commit locks may raise it without a word."""
        if retryable is not None:
            facts["retryable"] = retryable
        super().__init__(message or "CommitConflictError: another writer was first", **facts)

    @property
    def retryable(self) -> bool:
        """Whether doing the work again from the latest version can succeed."""
        return bool(self.facts.get("retryable", True))


class CommitContentionError(CommitError):
    """Every attempt lost the race for a version; try again later, nothing conflicts."""


class CommittedFilesMissingError(CommitError):
    """Files of a commit were removed before it was acknowledged; the message says what to do."""


class CommitOutcomeUnknownError(CommitError):
    """The store lost its reply; look for our transaction id before doing anything."""


class MemoryLimitError(LanceletError, MemoryError):
    """The work does not fit the memory that was allowed or is there; do it in smaller parts."""


class CancelledError(LanceletError, RuntimeError):
    """The caller asked for the work to stop."""


class InternalError(LanceletError, RuntimeError):
    """A promise of our own code was broken; please report it."""

"""Shared behavior of namespace operations: counting calls and locating tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import lance_namespace
import pyarrow as pa
from lance_namespace import (
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from lance_namespace_urllib3_client.models import JsonArrowSchema, TableBasicStats

from lancelet.dataset.dataset import LanceDataset
from lancelet.errors import DatasetNotFoundError
from lancelet.namespace.catalog import SEPARATOR
from lancelet.namespace.context import REQUEST_HEADERS, DynamicContextProvider, headers_of
from lancelet.namespace.routes import DICTS, ROUTES
from lancelet.namespace.types import schema_form

_AT_VERSION: Final = frozenset(
    {
        "analyze_table_query_plan",
        "count_table_rows",
        "describe_table_index_stats",
        "list_table_indices",
        "query_table",
    }
)
"""The operations with a version in the request."""

_MODES: Final = {"create", "existok", "overwrite"}


class OutcomeUnknownError(ServiceUnavailableError):  # type: ignore[misc]  # its stubs are not read
    """The answer of a catalog was lost: the request may have taken effect, or may still do so.

    The message says what to check before a retry.
    """


class Operations(ABC):
    """The base class of namespace operations; locates tables by id.

    Requests are `lance_namespace` models, dicts, or objects of native clients: dicts with a method
    `model_dump`.
    """

    def __init_subclass__(cls) -> None:
        """Wrap the operations of a subclass to accept dicts."""
        for name in vars(cls).keys() & ROUTES.keys() - DICTS:
            setattr(cls, name, _taking_dicts(getattr(cls, name), ROUTES[name].request))

    def __init__(self, provider: DynamicContextProvider | None, *, counts: bool) -> None:
        """Set the context provider and whether to count operations."""
        self._provider = provider
        self._counts: Counter[str] | None = Counter() if counts else None

    @abstractmethod
    def declare_table(self, request: Any) -> Any:
        """Reserve a name for a table that is written later."""

    @abstractmethod
    def _location_of(self, path: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Return the location of a table and its storage options."""

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Return the number of calls per operation, if enabled."""
        return dict(self._counts or {})

    def reset_ops_metrics(self) -> None:
        """Reset the counts."""
        if self._counts is not None:
            self._counts.clear()

    def _begin(self, operation: str, request: Any) -> tuple[str, ...]:
        """Count an operation, and return the path of its object."""
        return self._begin_with(operation, request.id or ())

    def _begin_with(self, operation: str, path: Sequence[str]) -> tuple[str, ...]:
        if self._counts is not None:
            self._counts[operation] += 1
        REQUEST_HEADERS.set(headers_of(self._provider, operation, SEPARATOR.join(path)))
        return tuple(path)

    def _dataset(self, operation: str, request: Any) -> LanceDataset:
        path = self._begin(operation, request)
        version = getattr(request, "version", None) if operation in _AT_VERSION else None
        return self._open(path, version, getattr(request, "branch", None))

    def _open(
        self, path: Sequence[str], version: int | None = None, branch: str | None = None
    ) -> LanceDataset:
        location, options = self._location_of(path)
        at: Any = version if branch is None else (branch, version)
        try:
            return LanceDataset(location, at, storage_options=options or None)
        except DatasetNotFoundError as error:
            raise TableNotFoundError(f"Table not found: {SEPARATOR.join(path)}") from error

    def _with_details(self, answer: Any, request: Any, is_written: Callable[[], bool]) -> Any:
        """Return the description of a table with the requested details."""
        if request.load_detailed_metadata or request.check_declared:
            answer.is_only_declared = not is_written()
        if request.load_detailed_metadata and not answer.is_only_declared:
            path = (*answer.namespace, answer.table)
            dataset = self._open(path, request.version, request.branch)
            statistics = dataset.stats.dataset_stats()
            answer.version = dataset.version
            answer.var_schema = JsonArrowSchema.from_dict(schema_form(dataset.schema))
            answer.stats = TableBasicStats(
                num_deleted_rows=statistics["num_deleted_rows"],
                num_fragments=statistics["num_fragments"],
            )
        return answer

    def create_empty_table(self, request: Any) -> Any:
        """Reserve a name for a table that is written later. Deprecated: use `declare_table`."""
        declaration = lance_namespace.DeclareTableRequest(
            id=request.id, location=getattr(request, "location", None)
        )
        return self.declare_table(declaration)


def _taking_dicts(operation: Callable[..., Any], request_name: str) -> Callable[..., Any]:
    kind = getattr(lance_namespace, request_name)

    @wraps(operation)
    def with_request(self: Any, request: Any, *data: bytes) -> Any:
        if not isinstance(request, kind):
            given = request if isinstance(request, Mapping) else request.model_dump()
            request = kind.model_validate(dict(given))
        return operation(self, request, *data)

    return with_request


def read_stream(data: bytes, operation: str) -> pa.Table:
    """Return a reader of the rows in a request, in the Arrow IPC stream format."""
    if not data:
        raise InvalidInputError(
            f"Invalid input: Request data (Arrow IPC stream) is required for {operation}"
        )
    try:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_all()
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"Invalid input: not an Arrow IPC stream: {error}") from error


def mode_of(request: Any) -> str:
    """Return the mode of `create_table`: `create`, `existok` or `overwrite`."""
    mode = (request.mode or "create").lower().replace("exist_ok", "existok")
    if mode not in _MODES:
        raise InvalidInputError(f"Invalid input: mode {request.mode}")
    return mode


def transaction_id_of(dataset: LanceDataset) -> str | None:
    """Return the id of the transaction that created the version."""
    transaction = dataset.snapshot.transaction
    return None if transaction is None else str(transaction.uuid)


def text_of(path: Sequence[str]) -> str:
    """Return a path as text."""
    return SEPARATOR.join(path)


def not_found(path: Sequence[str]) -> TableNotFoundError:
    """Return the error for a missing table."""
    return TableNotFoundError(f"Table not found: table id '{text_of(path)}'")


def no_namespace(path: Sequence[str]) -> NamespaceNotFoundError:
    """Return the error for a missing namespace."""
    return NamespaceNotFoundError(f"Namespace not found: {text_of(path)}")


def already_exists(
    path: Sequence[str], *, is_table: bool
) -> TableAlreadyExistsError | NamespaceAlreadyExistsError:
    """Return the error for a table or namespace whose name is taken."""
    if is_table:
        return TableAlreadyExistsError(f"Table already exists: {text_of(path)}")
    return NamespaceAlreadyExistsError(f"Namespace already exists: {text_of(path)}")


def page_of(names: list[str], request: Any) -> tuple[list[str], str | None]:
    """Return the page of names after a token, and the token of the next page."""
    remaining = [name for name in names if request.page_token is None or name > request.page_token]
    if request.limit is None or len(remaining) <= request.limit:
        return remaining, None
    shown = remaining[: request.limit]
    return shown, shown[-1] if shown else None

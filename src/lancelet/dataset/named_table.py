"""Tables that are named by a namespace instead of a URI.

    dataset(namespace_client=ns, table_id=["sales", "q"])
    ns.describe_table(id=["sales", "q"])     where it is, and what its store asks for

A table that is created takes its name first. Credentials that end are asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lance_namespace import LanceNamespace


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of a namespace.

    Attributes:
        client: The namespace.
        table_id: The path of the name.
        is_managed: Whether the namespace keeps the versions; None if nobody asked it yet.
    """

    client: LanceNamespace
    table_id: tuple[str, ...]
    is_managed: bool | None = None

    def opened(
        self, storage_options: Mapping[str, str] | None
    ) -> tuple[str, Mapping[str, str], NamedTable]:
        """Ask where the table is: its URI, the options of its store, and the table as known."""
        answer = self.described()
        options = {**(storage_options or {}), **(answer.storage_options or {})}
        known = replace(self, is_managed=bool(answer.managed_versioning))
        return _location(answer, self.table_id), options, known

    def uri_to_write(self, *, creates: bool) -> str:
        """Return where the table is; one that is to be created takes its name first.

        Raises:
            TableNotFoundError: If nothing has the name, and nothing is to be created.
        """
        names = namespace_module()
        try:
            return _location(self.described(), self.table_id)
        except names.TableNotFoundError:
            if not creates:
                raise
            asked = names.DeclareTableRequest(id=list(self.table_id))
            return _location(self.client.declare_table(asked), self.table_id)

    def storage_options(self) -> Mapping[str, str]:
        """Return what the store asks for, such as credentials that end."""
        return dict(self.described().storage_options or {})

    def described(self) -> Any:
        """Return what the namespace says of the table."""
        asked = namespace_module().DescribeTableRequest(
            id=list(self.table_id), vend_credentials=True
        )
        return self.client.describe_table(asked)


def named_table(
    uri: object, client: LanceNamespace | None, table_id: Sequence[str] | None
) -> NamedTable | None:
    """Return the table that a caller names by its id, or None if by its URI."""
    if (client is None) != (table_id is None):
        raise InvalidInputError("Both 'namespace_client' and 'table_id' must be provided together.")
    if client is None or table_id is None:
        if uri is None:
            raise InvalidInputError(
                "Must specify either 'uri' or both 'namespace_client' and 'table_id'."
            )
        return None
    return NamedTable(client, tuple(table_id))


def refuse_both(uri: object, client: object) -> None:
    """Raise if a table is named in two ways."""
    if uri is not None and client is not None:
        raise InvalidInputError(
            "Cannot specify both 'uri' and 'namespace_client/table_id'. Please provide either "
            "'uri' or both 'namespace_client' and 'table_id'."
        )


def _location(answer: Any, table_id: Sequence[str]) -> str:
    if not answer.location:
        raise InvalidInputError("the namespace does not say where a table is", table=list(table_id))
    return str(answer.location)


def namespace_module() -> Any:
    """Return the package of requests, answers and errors that all namespaces share."""
    try:
        import lance_namespace  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("namespaces need the extra `lancelet[namespace]`") from error
    return lance_namespace

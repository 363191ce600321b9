"""Tables identified by a namespace and a table id instead of a URI.

    dataset(namespace_client=ns, table_id=["sales", "q"])
    ns.describe_table(id=["sales", "q"])     the location and storage options

A new table is declared before it is written. Temporary credentials are refreshed before expiry.
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
        table_id: The id of the table in the namespace.
        is_managed: Whether the namespace manages the versions; None if not yet described.
    """

    client: LanceNamespace
    table_id: tuple[str, ...]
    is_managed: bool | None = None

    def opened(
        self, storage_options: Mapping[str, str] | None
    ) -> tuple[str, Mapping[str, str], NamedTable]:
        """Describe the table: its URI, its storage options, and the updated instance."""
        answer = self.described()
        options = {**(storage_options or {}), **(answer.storage_options or {})}
        described = replace(self, is_managed=bool(answer.managed_versioning))
        return _location(answer, self.table_id), options, described

    def uri_to_write(self, *, creates: bool) -> str:
        """Return the location of the table; declare the table if it is to be created.

        Raises:
            TableNotFoundError: If the table does not exist and `creates` is False.
        """
        names = namespace_module()
        try:
            return _location(self.described(), self.table_id)
        except names.TableNotFoundError:
            if not creates:
                raise
            request = names.DeclareTableRequest(id=list(self.table_id))
            return _location(self.client.declare_table(request), self.table_id)

    def storage_options(self) -> Mapping[str, str]:
        """Return the current storage options, such as temporary credentials."""
        return dict(self.described().storage_options or {})

    def described(self) -> Any:
        """Return the description of the table by the namespace."""
        request = namespace_module().DescribeTableRequest(
            id=list(self.table_id), vend_credentials=True
        )
        return self.client.describe_table(request)


def named_table(
    uri: object, client: LanceNamespace | None, table_id: Sequence[str] | None
) -> NamedTable | None:
    """Return the table of a namespace, or None if a URI is given instead."""
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
    """Raise if both a URI and a namespace are given."""
    if uri is not None and client is not None:
        raise InvalidInputError(
            "Cannot specify both 'uri' and 'namespace_client/table_id'. Please provide either "
            "'uri' or both 'namespace_client' and 'table_id'."
        )


def _location(answer: Any, table_id: Sequence[str]) -> str:
    if not answer.location:
        raise InvalidInputError("the namespace returned no table location", table=list(table_id))
    return str(answer.location)


def namespace_module() -> Any:
    """Import `lance_namespace`, the package of requests, responses and errors of namespaces."""
    try:
        import lance_namespace  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("namespaces require the extra `lancelet[namespace]`") from error
    return lance_namespace

"""Namespaces: names for tables, kept in a folder or behind a server.

    ns = DirectoryNamespace(root="s3://bucket/tables")
    ns.create_namespace(CreateNamespaceRequest(id=["sales"]))
    lancelet.write_dataset(rows, namespace_client=ns, table_id=["sales", "orders"])

Requests and answers are the classes of the package `lance-namespace`, which this one needs.
"""

from lancelet.namespace.adapter import RestAdapter
from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.directory import DirectoryNamespace
from lancelet.namespace.rest import RestNamespace

__all__ = ["DirectoryNamespace", "DynamicContextProvider", "RestAdapter", "RestNamespace"]

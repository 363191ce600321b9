"""Namespaces: catalogs of tables in a folder or on a server.

    ns = DirectoryNamespace(root="s3://bucket/tables")
    ns.create_namespace(CreateNamespaceRequest(id=["sales"]))
    lancelet.write_dataset(rows, namespace_client=ns, table_id=["sales", "orders"])

Requests and responses are classes of the required package `lance-namespace`. This package
re-exports them and the interface `LanceNamespace`.
"""

import lance_namespace

from lancelet.namespace.adapter import RestAdapter
from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.directory import DirectoryNamespace
from lancelet.namespace.rest import RestNamespace
from lancelet.on_demand import import_on_demand

__all__ = ["DirectoryNamespace", "DynamicContextProvider", "RestAdapter", "RestNamespace"]

import_on_demand(
    __name__,
    {
        "PyDirectoryNamespace": "lancelet.namespace.dict_forms",
        "PyRestAdapter": "lancelet.namespace.adapter:RestAdapter",
        "PyRestNamespace": "lancelet.namespace.dict_forms",
    }
    | {
        name: "lance_namespace"
        for name in lance_namespace.__all__
        if name.endswith(("Request", "Response", "LanceNamespace"))
    },
)

"""Namespaces: catalogs of tables in a folder, on a server, or in an external catalog.

    ns = DirectoryNamespace(root="s3://bucket/tables")
    ns.create_namespace(CreateNamespaceRequest(id=["sales"]))
    lancelet.write_dataset(rows, namespace_client=ns, table_id=["sales", "orders"])

Requests and responses are classes of the required package `lance-namespace`. This package
re-exports them and the interface `LanceNamespace`.
"""

# ruff: noqa: TC004 - public names are imported on demand, and here for type checkers only

from typing import TYPE_CHECKING

import lance_namespace

from lancelet.namespace.adapter import RestAdapter
from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.directory import DirectoryNamespace
from lancelet.namespace.kinds import connect
from lancelet.namespace.operations import OutcomeUnknownError
from lancelet.namespace.rest import RestNamespace
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.namespace.glue import GlueNamespace
    from lancelet.namespace.hive import HiveNamespace
    from lancelet.namespace.iceberg_rest import IcebergNamespace
    from lancelet.namespace.polaris import PolarisNamespace
    from lancelet.namespace.unity import UnityNamespace

__all__ = [
    "DirectoryNamespace",
    "DynamicContextProvider",
    "GlueNamespace",
    "HiveNamespace",
    "IcebergNamespace",
    "OutcomeUnknownError",
    "PolarisNamespace",
    "RestAdapter",
    "RestNamespace",
    "UnityNamespace",
    "connect",
]

import_on_demand(
    __name__,
    {
        "GlueNamespace": "lancelet.namespace.glue",
        "HiveNamespace": "lancelet.namespace.hive",
        "IcebergNamespace": "lancelet.namespace.iceberg_rest",
        "PolarisNamespace": "lancelet.namespace.polaris",
        "PyDirectoryNamespace": "lancelet.namespace.dict_forms",
        "PyRestAdapter": "lancelet.namespace.adapter:RestAdapter",
        "PyRestNamespace": "lancelet.namespace.dict_forms",
        "UnityNamespace": "lancelet.namespace.unity",
    }
    | {
        name: "lance_namespace"
        for name in lance_namespace.__all__
        if name.endswith(("Request", "Response", "LanceNamespace"))
    },
)

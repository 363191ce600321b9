"""The kinds of namespaces, by name.

connect("glue", {"region": "us-east-1"})     GlueNamespace
connect("other", {...})                      a kind that `lance_namespace` knows
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import lance_namespace

KINDS: Final[Mapping[str, str]] = {
    "dir": "directory:DirectoryNamespace",
    "glue": "glue:GlueNamespace",
    "hive": "hive:HiveNamespace",
    "iceberg": "iceberg_rest:IcebergNamespace",
    "polaris": "polaris:PolarisNamespace",
    "rest": "rest:RestNamespace",
    "unity": "unity:UnityNamespace",
}


def connect(kind: str, properties: Mapping[str, str] | None = None) -> Any:
    """Return a namespace of a kind.

    Args:
        kind: `dir`, `glue`, `hive`, `iceberg`, `polaris`, `rest` or `unity`, or a kind or class of
            another package, as in `lance_namespace.connect`.
        properties: The properties of the namespace.

    Returns:
        A namespace.

    Example:
        ```python
        from lancelet.namespace import connect

        connect("dir", {"root": "shop"})
        ```
    """
    target = KINDS.get(kind)
    if target is None:
        return lance_namespace.connect(kind, dict(properties or {}))
    module, name = target.split(":")
    own = getattr(import_module(f"lancelet.namespace.{module}"), name)
    return own(**dict(properties or {}))

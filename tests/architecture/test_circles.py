"""Modules have no circular imports.

All imports count: those inside functions, which hide a cycle without breaking it, and names that a
package resolves on demand, such as `searches.exact.exact_search`. A module that imports from a
package needs the package and its parents, except for packages that the module itself is in.

Imports for type checkers are counted separately. Only the classes of the public API refer to each
other in signatures. Modules that require an optional package do not count.
"""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lancelet
from lancelet.on_demand import Package

ROOT = Path(lancelet.__file__).parent
OPTIONAL = frozenset({"lancelet.torch.training", "lancelet.arrow.pandas_bfloat16"})
"""Modules that need PyTorch or pandas, imported where a program has asked for these."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in [*ROOT.rglob("*.pyi"), *ROOT.rglob("*.py")]:
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def homes(package: str) -> dict[str, str]:
    """Return the modules of the names that a package finds on demand."""
    if modules()[package].name != "__init__.py":
        return {}
    found = importlib.import_module(package)
    names = found._homes if isinstance(found, Package) else {}
    return {name: home.partition(":")[0] for name, home in names.items()}


def named(package: str, name: str) -> str:
    """Return the module that `from package import name` needs."""
    if name in homes(package):
        return homes(package)[name]
    return f"{package}.{name}" if f"{package}.{name}" in modules() else package


def statements(node: ast.AST, *, types: bool = False) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if types or not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from statements(child, types=types)


def around(module: str) -> set[str]:
    """Return the packages that a module is in.

    >>> sorted(around("lancelet.io.local"))
    ['lancelet', 'lancelet.io']
    """
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def needed(module: str, *, types: bool = False) -> set[str]:
    """Return the modules that a module needs, optionally with those for type checkers."""
    found: set[str] = set()
    packages: dict[str, str] = {}
    tree = ast.parse(modules()[module].read_text())
    for node in statements(tree, types=types):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for each in node.names:
                source = named(node.module, each.name)
                found.add(source)
                if source != f"{node.module}.{each.name}":
                    found.add(node.module)
                if modules()[source].name == "__init__.py":
                    packages[each.asname or each.name] = source
    for node in statements(tree, types=types):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package = packages.get(node.value.id)
            if package is not None:
                found.add(named(package, node.attr))
    for each in tuple(found):
        found |= around(each) - around(module)
    return (found & modules().keys()) - {module} - OPTIONAL


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules in which each needs each other."""
    while met := {each for each in graph if not graph[each]}:
        graph = {each: graph[each] - met for each in graph if each not in met}
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, waiting = set[str](), [start]
        while waiting:
            for each in graph[waiting.pop()] - seen:
                seen.add(each)
                waiting.append(each)
        reached[start] = seen
    groups = {
        tuple(sorted(other for other in reached[each] if each in reached[other]))
        for each in graph
        if each in reached[each]
    }
    return sorted(map(list, groups))


def test_no_modules_import_each_other_in_a_circle():
    assert circles({module: needed(module) for module in modules()}) == []


def test_type_imports_form_cycles_in_the_public_api_only():
    """The dataset, its fragments and its scanners return each other."""
    graph = {
        module: needed(module, types=True)
        for module in modules()
        if modules()[module].name != "__init__.py"
    }
    cycles = circles({module: graph[module] & graph.keys() for module in graph})
    api = ("lancelet.dataset.", "lancelet.torch.", "lancelet.sampler")
    assert [cycle for cycle in cycles if not all(each.startswith(api) for each in cycle)] == []
    assert len(cycles) <= 1
    assert sum(map(len, cycles)) <= 44


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]

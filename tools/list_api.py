"""Write the page that lists every public name of pylance as done or planned.

`pylance_names.txt` has the names, by tier, module and path. A name is done if it is found under
our module of the same name. Names that pylance refuses to serve are done by refusing them too.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

NAMES = Path(__file__).parent / "pylance_names.txt"
PAGE = Path(__file__).parent.parent / "docs/reference/pylance.md"

REFUSED_BY_PYLANCE = {
    "LanceDataset.partition_expression",
    "LanceDataset.replace_schema",
    "LanceFragment.partition_expression",
    "LanceFragment.physical_schema",
    "LanceScanner.from_dataset",
    "LanceScanner.from_fragment",
    "LanceScanner.from_batches",
    "LanceScanner.take",
}
"""Names that pylance refuses as well, so that refusing them is all there is to do."""

HEAD = """# Names of pylance

Programs written for pylance call these names. Tier 1 is what they use without thinking, tier 2
what platforms use, tier 3 what is experimental or thin. `import lancelet as lance` finds what is
done under the same name and module; what is planned is not there yet, or says that it is not
available. This page is written by `tools/list_api.py` from what the code has.
"""


class Name(NamedTuple):
    """A public name of pylance: its tier, its module, and its path within the module."""

    tier: int
    module: str
    path: str


def read_names() -> list[Name]:
    """Return all names."""
    lines = NAMES.read_text().splitlines()
    return [Name(int(tier), module, path) for tier, module, path in map(str.split, lines)]


def is_done(name: Name) -> bool:
    """Whether we have a name, and it does what it is for."""
    if name.path in REFUSED_BY_PYLANCE:
        return True
    ours = "lancelet" + name.module.removeprefix("lance")
    try:
        found: Any = importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name is None or not ours.startswith(error.name):
            raise
        return False
    return all((found := _member(found, part)) is not None for part in name.path.split("."))


def _member(owner: Any, name: str) -> Any:
    """Return a member of a module or class; fields of values count though they have no default."""
    if isinstance(owner, ModuleType):  # packages import names when they are asked for
        return getattr(owner, name, None)
    found = inspect.getattr_static(owner, name, None)
    if found is not None:
        return found.__func__ if isinstance(found, staticmethod | classmethod) else found
    fields = {field.name for field in dataclasses.fields(owner)} if _has_fields(owner) else set()
    annotated = set(getattr(owner, "__annotations__", ()))
    return name if name in fields | annotated else None


def _has_fields(owner: Any) -> bool:
    return isinstance(owner, type) and dataclasses.is_dataclass(owner)


def render() -> str:
    """Return the page."""
    names = read_names()
    done = {name: is_done(name) for name in names}
    parts = [HEAD, "## In numbers\n", "| Tier | Done | Planned |", "| --- | --- | --- |"]
    for tier in sorted({name.tier for name in names}):
        counts = Counter(done[name] for name in names if name.tier == tier)
        parts.append(f"| {tier} | {counts[True]} | {counts[False]} |")
    for module in dict.fromkeys(name.module for name in names):
        parts += [f"\n## {module}\n", "| Name | Tier | State |", "| --- | --- | --- |"]
        parts += [
            f"| `{name.path}` | {name.tier} | {'done' if done[name] else 'planned'} |"
            for name in names
            if name.module == module
        ]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the page, or check that it is as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    page = render()
    if parser.parse_args().check:
        return 0 if PAGE.read_text() == page else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

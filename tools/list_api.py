"""Write the page of differences from pylance, by comparing its names and arguments with ours.

`pylance_names.txt` has the names, by tier, module and path. A name is there if it is found under
our module of the same name. Names that pylance refuses to serve are there by refusing them too.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lancelet.about import PYLANCE_VERSION
from tests.kit.method_runs import DIFFERENCES, RUNS

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

HEAD = """# Differences from pylance

What a program written for pylance {version} finds otherwise in lancelet, by a comparison of all
{count} public names of pylance with those here: which names and arguments are absent, and which
arguments are taken and change nothing, and by calls whose results are compared. That a name is here
says that it can be called; that it does the same is the work of the tests beside the reference
implementation. This page is written by `tools/list_api.py`, which needs pylance.

## Behaviour that differs on purpose

- Rows that are added to a table are converted to its types where that loses nothing, and a value
  that would change is refused with its row ([rows in and out](../guide/frames.md)).
- A `datasets.Dataset` whose rows were chosen or shuffled is written in that order; pylance writes
  the rows as they are stored.
- A name that only some dicts of a list have is a column; pylance drops it.
- `create_index` warns of arguments that it does not know; options of a vector search that change
  nothing warn as well.
- In expressions `digest` has no blake3, `version()` is that of lancelet, and there are no functions
  of unions.
- An index build raises `CommitConflictError` if its column was dropped or cast in the meantime, and
  `commit` refuses an index on a field that the table does not have. pylance commits the index, and
  then raises an error for every filter on the table.
- A commit of an operation checks that its new files exist (`CommittedFilesMissingError`); pylance
  commits an operation whose files are missing.
- A manifest under the name of another version is an error; pylance opens it under the newest name.
- Pickled datasets and results of compactions are refused if the table was deleted and made again.
- `_take_rows` leaves out ids that no live row has; pylance raises an error.
- `array_has_all` and `array_has_any` need lists of comparable types, and are null for a null list.
  `left` and `right` return the text type of their argument, where pylance returns `string_view`.
- Arguments of `create_index` after `index_uuid` are keyword-only, and so is the `file` of
  `lance.lance.trace_to_chrome`, which pylance calls `path`.
- `PyDirectoryNamespace` and `PyRestNamespace` have the methods of a namespace, which take requests
  and return responses; the other methods of pylance's classes are absent.
- `pyarrow.dataset.Scanner.from_dataset(dataset)` raises an error; with pylance it ends the process.
"""


COMPARED = """{count} calls of public methods are made on both libraries, each on a new table of the
same rows, by `tests/interop/test_runs_of_methods.py`. Results are equal, and an error is one that
code that catches that of pylance catches too, but for:
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


def absent_arguments(name: Name) -> list[str]:
    """Return the arguments that a function of pylance takes and ours of that name does not."""
    theirs, ours = arguments_of_pylance().get(name), arguments(_our_module(name.module), name.path)
    if theirs is None or ours is None or "**" in ours:
        return []
    return [each for each in theirs if each not in ours and each != "**"]


@cache
def arguments_of_pylance() -> dict[Name, list[str]]:
    """Return the arguments of each name, asked in a process of its own.

    Two readers of Lance in one process would register the same types of Arrow.
    """
    program = f"import runpy; runpy.run_path({__file__!r})['print_arguments']()"
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return {
        name: given for name, given in zip(read_names(), found, strict=True) if given is not None
    }


def print_arguments() -> None:
    """Print the arguments of each name of pylance as JSON."""
    sys.stdout.write(json.dumps([arguments(name.module, name.path) for name in read_names()]))


def arguments(module: str, path: str) -> list[str] | None:
    """Return the names of a function's arguments, `**` for any others; None if unknown."""
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        parameters = inspect.signature(found).parameters.values()
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    names = ["**" if each.kind is each.VAR_KEYWORD else each.name for each in parameters]
    return [each for each in names if each not in {"self", "cls", "_handle", "args"}]


def without_effect(name: Name) -> list[tuple[str, str]]:
    """Return the arguments of ours whose documentation says that they have no effect, and why."""
    try:
        found: Any = importlib.import_module(_our_module(name.module))
        for part in name.path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return []
    text = inspect.getdoc(found) or ""
    if inspect.isclass(found):
        text = inspect.getdoc(found.__init__) or ""
    return [(one, " ".join(why.split())) for one, why in _NO_EFFECT.findall(text)]


_NO_EFFECT = re.compile(r"^ +(\w+): (Has no effect[^\n]*(?:\n {8,}[^\n]+)*)", re.MULTILINE)


def _our_module(module: str) -> str:
    return "lancelet" + module.removeprefix("lance")


def render() -> str:
    """Return the page."""
    names = read_names()
    absent = [name for name in names if not is_done(name)]
    parts = [HEAD.format(version=PYLANCE_VERSION, count=len(names))]
    parts += ["## Unsupported names\n"]
    parts += [f"- `{name.module}.{name.path}`" for name in absent] or ["None."]
    parts += ["\n## Unsupported arguments\n", "| Name | Arguments |", "| --- | --- |"]
    for name in names:
        lacking = absent_arguments(name)
        if lacking:
            shown = ", ".join(f"`{one}`" for one in lacking)
            parts.append(f"| `{name.module}.{name.path}` | {shown} |")
    parts += ["\n## Arguments that change nothing\n"]
    parts += ["| Name | Argument | |", "| --- | --- | --- |"]
    for name in names:
        for argument, why in without_effect(name):
            parts.append(f"| `{name.module}.{name.path}` | `{argument}` | {why} |")
    parts += ["\n## Calls that were compared\n", COMPARED.format(count=len(RUNS))]
    parts += [f"- `{run}`: {why}." for run, why in DIFFERENCES.items()]
    methods = sorted({run.partition("(")[0] for run in RUNS})
    parts += ["", f"These methods were called: {', '.join(f'`{each}`' for each in methods)}."]
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

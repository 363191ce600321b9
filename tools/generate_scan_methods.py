"""Generate the public methods of scans from the fields of `ScanOptions`.

    src/lancelet/dataset/scan/scan_methods.py   scanner, to_table, to_batches and to_pandas
    src/lancelet/dataset/scan/scan_setters.py   builder methods that set one field
    src/lancelet/cli/scan_arguments.py          options of commands
    src/lancelet/spark/scan_options.py          options of `format("lance")`

Types, defaults and texts are those of `src/lancelet/scan/scan_options.py`. `ARGUMENTS` has the
names and the order of pylance, and arguments that are converted to several fields or have no
effect. A field that it does not list becomes a keyword argument and a builder method of its name.

    python tools/generate_scan_methods.py          write the modules
    python tools/generate_scan_methods.py --check  fail if they differ from what would be written
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).resolve().parent.parent / "src/lancelet"
DECLARATION: Final = SOURCE / "scan/scan_options.py"
WIDTH: Final = 100
INTERNAL: Final = frozenset({"search", "rows", "adds_scores"})
"""Fields that are set by arguments of other names and types."""


class Argument(NamedTuple):
    """A public argument.

    Attributes:
        name: The name in pylance.
        field: The field that it sets if the name differs.
        type: The type if it differs from that of the field.
        text: The description if the argument is not a field.
        setter: The parameters of a generated builder method; None if it is written by hand.
        example: The calls in the example of the builder method.
    """

    name: str
    field: str = ""
    type: str = ""
    text: str = ""
    setter: str | None = None
    example: str = ""


_COLUMNS: Final = "Sequence[str] | Mapping[str, str] | None"
_READ_AHEAD: Final = "Has no effect: read-ahead is limited in bytes."
_SPACE: Final = "\0"
"""Stands for a space where lines are not broken."""
_PYARROW: Final = "Has no effect; accepted for compatibility with pyarrow."

ARGUMENTS: Final = (
    Argument("columns", type=_COLUMNS),
    Argument("filter", type="str | pc.Expression | None"),
    Argument("limit", setter="n=None", example="limit(5)"),
    Argument("offset", setter="n=None", example="offset(5)"),
    Argument(
        "nearest",
        type="Mapping[str, Any] | None",
        text="A vector search: the arguments of `ScannerBuilder.nearest`.",
    ),
    Argument("batch_size", setter="batch_size", example="batch_size(5)"),
    Argument(
        "batch_size_bytes",
        "batch_bytes",
        setter="batch_size_bytes",
        example="batch_size_bytes(1 << 20)",
    ),
    Argument("batch_readahead", type="int | None", text=_READ_AHEAD),
    Argument("fragment_readahead", type="int | None", text=_READ_AHEAD),
    Argument(
        "scan_in_order",
        type="bool | None",
        text="Has no effect: the order of rows is always preserved.",
        setter="scan_in_order=True",
        example="scan_in_order(False)",
    ),
    Argument("fragments", type="Sequence[pa.dataset.Fragment] | None"),
    Argument("index_segments", "segments", "Sequence[Any] | None"),
    Argument(
        "full_text_query",
        type="str | Mapping[str, Any] | FullTextQuery | None",
        text="Search terms, or a query of `lancelet.query`.",
    ),
    Argument(
        "prefilter",
        setter="prefilter=True",
        example='nearest("vector", [1.0] * 4).prefilter()',
    ),
    Argument("with_row_id", setter="with_row_id=True", example="with_row_id()"),
    Argument("with_row_address", setter="with_row_address=True", example="with_row_address()"),
    Argument(
        "use_stats",
        "use_statistics",
        setter="use_stats=True",
        example='filter("id = 3").use_stats(False)',
    ),
    Argument("fast_search", "indexed_only", setter="flag=True", example="fast_search()"),
    Argument(
        "io_buffer_size",
        type="int | None",
        text=_READ_AHEAD,
        setter="io_buffer_size",
        example="io_buffer_size(64 << 20)",
    ),
    Argument(
        "late_materialization",
        type="bool | Sequence[str] | None",
        text="Has no effect: columns outside of the filter are always read late.",
    ),
    Argument(
        "blob_handling",
        type="str | None",
        text="`blobs_descriptions`, with positions and sizes, or `all_binary`.",
    ),
    Argument(
        "use_scalar_index",
        "use_indices",
        setter="use_scalar_index=True",
        example='filter("id = 3").use_scalar_index(False)',
    ),
    Argument(
        "include_deleted_rows",
        "with_deleted",
        setter="flag",
        example="include_deleted_rows(True).with_row_id()",
    ),
    Argument(
        "scan_stats_callback",
        type="Callable[[ScanMetrics], None] | None",
        text="Receives the statistics of the scan when it ends.",
    ),
    Argument(
        "strict_batch_size",
        "is_strict",
        setter="strict_batch_size=False",
        example="batch_size(8).strict_batch_size(True)",
    ),
    Argument("order_by", type="str | Sequence[ColumnOrdering | str] | None"),
    Argument(
        "disable_scoring_autoprojection",
        type="bool | None",
        text="Whether to return only selected scores.",
    ),
    Argument(
        "row_addr_allowlist",
        type="bytes | None",
        text="The rows to scan, a result of `serialize_row_addrs`.",
    ),
    Argument(
        "row_addr_blocklist",
        type="bytes | None",
        text="The rows to exclude, a result of `serialize_row_addrs`.",
    ),
    Argument("memory_limit", setter="memory_limit", example="memory_limit(1 << 30)"),
    Argument("use_threads", type="bool | None", text=_PYARROW),
    Argument("cache_metadata", type="bool | None", text=_PYARROW),
    Argument("fragment_scan_options", type="Any", text=_PYARROW),
    Argument("memory_pool", type="pa.MemoryPool | None", text=_PYARROW),
)
"""The arguments of `LanceDataset.scanner`, in its order."""

POSITIONAL: Final = 13
"""The number of arguments that may be positional."""

FRAME: Final = (
    *("columns", "filter", "limit", "offset", "nearest", "batch_size"),
    *("batch_readahead", "fragment_readahead", "scan_in_order"),
)
"""The positional arguments of `LanceDataset.to_pandas`."""

FRAGMENT: Final = {
    **dict.fromkeys(("columns", "filter", "limit", "offset"), "None"),
    **dict.fromkeys(("with_row_id", "with_row_address"), "False"),
    **dict.fromkeys(("blob_handling", "order_by", "use_scalar_index", "io_buffer_size"), "None"),
    **dict.fromkeys(("late_materialization", "include_deleted_rows", "batch_size_bytes"), "None"),
    **dict.fromkeys(("strict_batch_size", "batch_size"), "None"),
    "batch_readahead": "16",
}
"""The arguments of `LanceFragment.scanner` and their defaults, in its order."""

FRAGMENT_POSITIONAL: Final = 14

COMMANDS: Final = {
    "columns": ("--columns", {}, "comma-separated"),
    "filter": ("--filter", {}, "such as id > 3 AND name LIKE 'a%%'"),
    "offset": ("--offset", {"type": "int", "default": "0"}, ""),
    "with_row_id": ("--row-id", {"action": '"store_true"'}, ""),
}
"""The options of commands: the flag, arguments of argparse, and a note on the form of the value."""

SPARK: Final = ("columns", "filter", "fragments", "limit", "with_row_address", "with_row_id")
"""The options of `format("lance")`."""

HEAD: Final = '"""{title}\n\nGenerated by tools/generate_scan_methods.py; do not edit.\n"""\n'

RAISES: Final = """
        Raises:
            FieldNotFoundError: If a column does not exist.
            ExpressionError: If an expression is invalid.
            InvalidInputError: If an argument is invalid.
"""

METHODS: Final = '''

class ScanMethods:
    """Methods of a dataset that scan it."""

    def scanner(
        self,
{dataset}
    ) -> LanceScanner:
        """Return a scanner; it can be run several times.

{texts}

        Returns:
            The scanner; no data is read yet.
{raises}
        Example:
            ```python
            scanner = dataset.scanner(["name"], filter="price > 3")
            for batch in scanner.to_batches():
                print(batch.num_rows)
            print(scanner.explain_plan())
            ```
        """
        del use_threads, cache_metadata, fragment_scan_options, memory_pool  # no effect
        return build_scanner(
            self,
            {{
{items}
            }},
            allowlist=row_addr_allowlist,
            blocklist=row_addr_blocklist,
        )

    @takes_arguments_of(scanner)
    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Return rows as an Arrow table.

{texts}

        Returns:
            The rows, in memory.
{raises}
        Example:
            ```python
            dataset.to_table(["name", "price"], filter="price > 3", limit=10)
            dataset.to_table({{"total": "price * id"}}, order_by="price desc")
            dataset.to_table(nearest={{"column": "vector", "q": [0.1, 0.2, 0.3, 0.4], "k": 5}})
            ```
        """
        return self.scanner(*arguments, **options).to_table()

    @takes_arguments_of(scanner)
    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches, without reading all of them into memory.

{texts}

        Returns:
            An iterator of batches.

        Example:
            ```python
            for batch in dataset.to_batches(["name"], filter="price > 3", batch_size=1000):
                print(batch.num_rows)
            ```
        """
        return self.scanner(*arguments, **options).to_batches()

    def to_pandas(
        self,
{frame}
    ) -> Any:
        """Return rows as a pandas data frame.

        See `LanceDataset.scanner` for the arguments. `blob_mode` selects the representation
        of blob columns: `lazy` files, `bytes` or `descriptions`. Further arguments (`kwargs`) are
        passed to `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Example:
            ```python
            frame = dataset.to_pandas(columns=["id", "price"], filter="price > 3")
            frame.describe()
            ```
        """
        return self.scanner(
{frame_passed}
        ).to_pandas(blob_mode=blob_mode, **kwargs)


class FragmentScanMethods:
    """Methods of a fragment that scan it."""

    _dataset: ScanMethods

    def scanner(
        self,
{fragment}
    ) -> LanceScanner:
        """Return a scanner of the fragment. See `LanceDataset.scanner` for the arguments.

        Returns:
            The scanner; no data is read yet.

        Example:
            ```python
            dataset.get_fragment(0).scanner(columns=["id"], limit=3).to_table()
            ```
        """
        return self._dataset.scanner(
            fragments=[self],
{fragment_passed}
        )
'''

SETTER: Final = '''
    def {name}({parameters}) -> Self:
        """Set the option `{name}`.

        Args:
{text}

        Returns:
            The builder.

        Example:
            ```python
            ScannerBuilder(dataset).{example}.to_scanner().to_table()
            ```
        """
{body}
'''


class Field(NamedTuple):
    """A field of `ScanOptions`."""

    type: str
    default: str
    text: str


def fields_of(source: str) -> dict[str, Field]:
    """Return the fields of `ScanOptions` by name."""
    tree = ast.parse(source)
    (owner,) = (each for each in tree.body if getattr(each, "name", "") == "ScanOptions")
    section = (ast.get_docstring(owner) or "").partition("Attributes:\n")[2]
    texts = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE))
    return {
        each.target.id: Field(
            ast.unparse(each.annotation),
            ast.unparse(each.value) if each.value else "",
            " ".join(texts[each.target.id].split()),
        )
        for each in owner.body
        if isinstance(each, ast.AnnAssign)
    }


class Public(NamedTuple):
    """A public argument with its type and text."""

    argument: Argument
    field: Field | None
    type: str
    text: str

    @property
    def name(self) -> str:
        """The name of the argument."""
        return self.argument.name


def arguments_of(fields: Mapping[str, Field]) -> dict[str, Public]:
    """Return the public arguments by name: those of pylance, then fields it does not have."""
    listed = {each.field or each.name for each in ARGUMENTS} | INTERNAL
    ours = [Argument(name, setter=name) for name in fields if name not in listed]
    found = {}
    for each in (*ARGUMENTS, *ours):
        field = None if each.text else fields[each.field or each.name]
        own = each.type or field.type
        if own != "Any" and not own.endswith("None"):
            own += " | None"
        found[each.name] = Public(each, field, own, each.text or field.text)
    return found


def signature(arguments: Mapping[str, Public], defaults: Mapping[str, str], positional: int) -> str:
    """Return the parameters of a method, one in a line."""
    lines = []
    for name, default in defaults.items():
        own = arguments[name].type
        if default != "None":
            own = own.removesuffix(" | None")
        note = "  # noqa: A002 - pylance's name" if name == "filter" else ""
        lines.append(f"        {name}: {own} = {default},{note}")
    lines.insert(positional, "        *,")
    return "\n".join(lines)


def frame_signature(arguments: Mapping[str, Public]) -> str:
    """Return the parameters of `to_pandas`, which converts blobs itself."""
    names = [*FRAME, *(name for name in arguments if name not in {*FRAME, "blob_handling"})]
    lines = signature(arguments, dict.fromkeys(names, "None"), len(FRAME)).split("\n")
    lines.insert(len(FRAME) + 1, '        blob_mode: str = "lazy",')
    return "\n".join([*lines, "        **kwargs: Any,"])


def described(name: str, text: str) -> str:
    """Return the entry of an argument in a docstring."""
    filled = textwrap.fill(f"{name}: {text}", WIDTH - 12, subsequent_indent="    ")
    return textwrap.indent(filled, " " * 12)


def filled(parts: Iterable[str], indent: int) -> str:
    """Return the parts of a call in as few lines as possible."""
    words = " ".join(f"{part.replace(' ', _SPACE)}," for part in parts)
    text = textwrap.fill(words, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent(text.replace(_SPACE, " "), " " * indent)


def write_methods(arguments: Mapping[str, Public]) -> str:
    """Return the module of `scanner`, `to_table` and `to_batches`."""
    names = list(arguments)
    used = [
        each.name
        for each in arguments.values()
        if each.text != _PYARROW and not each.name.startswith("row_addr")
    ]
    texts = [described(each.name, each.text) for each in arguments.values()]
    imports = """
# fmt: off
# ruff: noqa: D417 - described by reference, or forwarded

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset

from lancelet.dataset.arguments import takes_arguments_of
from lancelet.dataset.scan.builder import build_scanner

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from lancelet.dataset.scan.builder import ColumnOrdering
    from lancelet.dataset.scan.scanner import LanceScanner
    from lancelet.scan.explain import ScanMetrics
    from lancelet.search.full_text import FullTextQuery
"""
    head = HEAD.format(title="Methods that scan datasets and fragments.") + imports
    return head + METHODS.format(
        dataset=signature(arguments, dict.fromkeys(names, "None"), POSITIONAL),
        texts="\n".join(["        Args:", *texts]),
        raises=RAISES,
        items=filled((f'"{name}": {name}' for name in used), 16),
        frame=frame_signature(arguments),
        frame_passed=filled((f"{name}={name}" for name in names if name != "blob_handling"), 12),
        fragment=signature(arguments, FRAGMENT, FRAGMENT_POSITIONAL),
        fragment_passed=filled((f"{name}={name}" for name in FRAGMENT), 12),
    )


def write_setters(arguments: Mapping[str, Public]) -> str:
    """Return the module of builder methods that set one field."""
    head = '''
from __future__ import annotations

from typing import Any, Self

from lancelet.arguments import flag, integer


class ScanSetters:
    """Builder methods that set one field of `ScanOptions`."""

    _options: dict[str, Any]

    def _set_flag(self, default: object, field: str, name: str, value: object) -> Self:
        self._options[field] = default if value is None else flag(name, value)
        return self

    def _set_integer(self, default: object, field: str, name: str, value: object) -> Self:
        self._options[field] = default if value is None else integer(name, value)
        return self
'''
    head = HEAD.format(title="Builder methods that set one field.") + head
    return head + "".join(setters_of(arguments.values()))


def setters_of(arguments: Iterable[Public]) -> Iterator[str]:
    """Yield the generated builder methods."""
    for each in arguments:
        name, field, setter = each.name, each.field, each.argument.setter
        if setter is None:
            continue
        parameter, _, default = setter.partition("=")
        kind = "flag" if "bool" in each.type else "integer"
        if field is None:
            check = f'{kind}("{name}", {parameter})'
            body = f"        if {parameter} is not None:\n            {check}\n        return self"
        else:
            names = f'"{each.argument.field or name}", "{name}", {parameter}'
            body = f"        return self._set_{kind}({field.default}, {names})"
        typed = f"{parameter}: {each.type}" + (f" = {default}" if default else "")
        yield SETTER.format(
            name=name,
            parameters=f"self, {typed}",
            text=described(parameter, each.text),
            example=each.argument.example or f"{name}(None)",
            body=body,
        )


def write_commands(arguments: Mapping[str, Public]) -> str:
    """Return the module of the options of commands."""
    head = HEAD.format(title="Options of commands that are scan options.")
    lines = []
    for name, (flag, keywords, note) in COMMANDS.items():
        text = arguments[name].text.partition(";")[0].rstrip(".").removeprefix("Whether to ")
        help_text = f"{text[0].lower()}{text[1:]}" + (f", {note}" if note else "")
        pairs = {**keywords, "help": json.dumps(help_text)}
        entry = ", ".join(f'"{key}": {value}' for key, value in pairs.items())
        lines.append(f'    "{flag}": {{{entry}}},\n')
    return f"""{head}
# fmt: off

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SCAN_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {{
{"".join(lines)}}}
\"""The arguments of `ArgumentParser.add_argument` by flag.\"""
"""


def write_spark(arguments: Mapping[str, Public]) -> str:
    """Return the module of the options of `format("lance")`."""
    head = HEAD.format(title='Options of `format("lance")` that are scan options.')
    names = ", ".join(f'"{arguments[name].name}"' for name in SPARK)
    return f"""{head}
from __future__ import annotations

from typing import Final

SCAN_NAMES: Final = frozenset(
    {{{names}}}
)
"""


def render() -> dict[Path, str]:
    """Return the text of every generated file."""
    arguments = arguments_of(fields_of(DECLARATION.read_text()))
    return {
        SOURCE / "dataset/scan/scan_methods.py": write_methods(arguments),
        SOURCE / "dataset/scan/scan_setters.py": write_setters(arguments),
        SOURCE / "cli/scan_arguments.py": write_commands(arguments),
        SOURCE / "spark/scan_options.py": write_spark(arguments),
    }


def main() -> int:
    """Write or check the generated modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for path, text in render().items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        print(f"stale, run tools/generate_scan_methods.py: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""`lancelet index TABLE [list | build | optimize | drop]`: lists and changes indices.

lancelet index t.lance build --column id --type BTREE
lancelet index t.lance build --column v
lancelet index t.lance build --column v --type IVF_PQ --option num_partitions=64
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_action,
    add_table,
    add_version,
    open_table,
    order_action,
)
from lancelet.cli.tag import named
from lancelet.errors import InvalidInputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    add_action(parser, ("list", "build", "optimize", "drop"))
    parser.add_argument(
        "name",
        nargs="?",
        help="the name of the index; `build` derives it from the column by default",
    )
    parser.add_argument("--column", help="the column to index")
    parser.add_argument("--type", help="BTREE, BITMAP, INVERTED, IVF_PQ, ...; optional for vectors")
    parser.add_argument(
        "--metric", default="L2", help="distance of vectors: L2, cosine, dot, hamming"
    )
    parser.add_argument("--replace", action="store_true", help="replace an index of the same name")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the index, such as num_partitions=64; may be repeated",
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Run the action."""
    order_action(arguments)
    table = open_table(arguments)
    match arguments.action:
        case "build":
            _build(arguments, table, progress=out.shows_progress)
        case "optimize":
            table.optimize.optimize_indices(
                index_names=None if arguments.name is None else [arguments.name],
                progress=out.shows_progress,
            )
        case "drop":
            table.drop_index(named(arguments))
        case _:
            rows = [_row(table, each) for each in table.describe_indices()]
            columns = ("name", "type", "columns", "indexed_rows", "other_rows", "segments")
            out.table(columns, rows)
            return ExitCode.DONE
    out.facts({"done": arguments.action, "index": arguments.name, "version": table.version})
    return ExitCode.DONE


def _build(arguments: argparse.Namespace, table: Any, *, progress: bool) -> None:
    if arguments.column is None:
        arguments.usage_error("build requires --column")
    options = dict(map(_option, arguments.option))
    arguments.name = arguments.name or f"{arguments.column}_idx"
    shared = {"name": arguments.name, "replace": arguments.replace, "progress": progress, **options}
    kind = (arguments.type or "").upper()
    if kind and not kind.startswith("IVF_"):
        table.create_scalar_index(arguments.column, kind, **shared)
        return
    if kind:
        shared["index_type"] = kind
    table.create_index(arguments.column, metric=arguments.metric, **shared)


def _option(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator:
        raise InvalidInputError("--option requires KEY=VALUE", found=text)
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _row(table: Any, index: Any) -> tuple[Any, ...]:
    statistics = table.stats.index_stats(index.name)
    return (
        index.name,
        index.index_type,
        index.field_names,
        statistics["num_indexed_rows"],
        statistics["num_unindexed_rows"],
        len(index.segments),
    )

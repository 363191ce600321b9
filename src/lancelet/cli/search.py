"""`lancelet search TABLE`: searches vectors, text, or both.

lancelet search docs.lance "red fox"
lancelet search docs.lance --vector "[0.1, 0.2]" --column embedding
lancelet search docs.lance --row 17 --column embedding       rows similar to a row
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_full,
    add_limit,
    add_scan_options,
    add_table,
    add_version,
    columns_of,
    open_table,
)
from lancelet.dataset import LanceDataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("terms", nargs="?", metavar="TEXT", help="the text to search for")
    parser.add_argument("--text", help="the same as TEXT")
    near = parser.add_mutually_exclusive_group()
    near.add_argument("--vector", help="numbers as JSON, or @FILE with them")
    near.add_argument("--row", type=int, help="search near the vector of this row index")
    parser.add_argument("--column", help="the vector column; required if there are several")
    add_limit(parser, "-k", "-n", "--limit", rows=10)
    add_full(parser)
    add_scan_options(parser, "--filter", "--columns")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the results, best first."""
    if arguments.terms is not None and arguments.text is not None:
        arguments.usage_error("TEXT and --text are the same option; pass one of them")
    arguments.text = arguments.text if arguments.terms is None else arguments.terms
    table = open_table(arguments)
    columns = columns_of(arguments)
    nearest = _nearest(arguments, table)
    if nearest is None and arguments.text is None:
        arguments.usage_error("one of TEXT, --vector and --row is required")
    if nearest is not None and arguments.text is not None:
        found = table.hybrid_search(
            arguments.text, nearest, arguments.limit, columns=columns, filter=arguments.filter
        )
    else:
        found = table.to_table(
            columns=columns,
            filter=arguments.filter,
            nearest=nearest,
            full_text_query=arguments.text,
            limit=arguments.limit,
            prefilter=True,
        )
    out.rows(found, full=arguments.full)
    return ExitCode.DONE


def _nearest(arguments: argparse.Namespace, table: LanceDataset) -> dict[str, Any] | None:
    if arguments.vector is None and arguments.row is None:
        return None
    column = arguments.column or _only_vector(arguments, table)
    if arguments.row is not None:
        vector = table.take([arguments.row], columns=[column])[column][0].as_py()
    else:
        text = arguments.vector
        if text.startswith("@"):
            with open(text[1:], encoding="utf-8") as file:  # noqa: PTH123 - a user's path
                text = file.read()
        try:
            vector = json.loads(text)
        except json.JSONDecodeError as error:
            arguments.usage_error(f"--vector requires a JSON array such as [0.1, 0.2]: {error}")
    return {"column": column, "q": vector, "k": arguments.limit}


def _only_vector(arguments: argparse.Namespace, table: LanceDataset) -> str:
    names = [field.name for field in table.schema if hasattr(field.type, "list_size")]
    if len(names) != 1:
        vector_columns = ", ".join(names) or "none"
        arguments.usage_error(f"--column is required; vector columns: {vector_columns}")
    return str(names[0])

"""`lancelet sql QUERY`: runs a query over tables.

    lancelet sql "SELECT city, count(*) FROM 'shop/sales.lance' GROUP BY city"
    lancelet sql "SELECT * FROM sales WHERE price > 3" --table sales=shop/sales.lance

A table is given by `--table`, or by its path in single quotes after FROM or JOIN. Requires the
extra `sql`.
"""

from __future__ import annotations

import argparse
import re

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_storage_options, storage_options_of
from lancelet.dataset import dataset
from lancelet.dataset.sql.tables import sql
from lancelet.errors import InvalidInputError

_PATH = re.compile(r"\b(FROM|JOIN)(\s+)'((?:[^']|'')+)'", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument("query", metavar="QUERY", help="SELECT ... FROM 'path/of/table.lance'")
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME=URI",
        help="a table, and its name in the query; may be repeated",
    )
    add_storage_options(parser)


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the rows of the result."""
    options = storage_options_of(arguments)
    uris = {}
    for text in arguments.table:
        name, separator, uri = text.partition("=")
        if not separator:
            raise InvalidInputError("--table requires NAME=URI", found=text)
        uris[name] = uri

    def named(match: re.Match[str]) -> str:
        name = f"table {len(uris)}"
        uris[name] = match[3].replace("''", "'")
        return f'{match[1]}{match[2]}"{name}"'

    query = _PATH.sub(named, arguments.query)
    tables = {name: dataset(uri, storage_options=options) for name, uri in uris.items()}
    out.rows(sql(query, tables=tables).to_table())
    return ExitCode.DONE

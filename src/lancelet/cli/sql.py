"""`lancelet sql [TABLE] QUERY`: runs a query over tables.

    lancelet sql shop/sales.lance "SELECT city, count(*) FROM sales GROUP BY city"
    lancelet sql "SELECT city, count(*) FROM 'shop/sales.lance' GROUP BY city"
    lancelet sql "SELECT * FROM sales WHERE price > 3" --table sales=shop/sales.lance

A table is given before the query, by `--table`, or by its path in single quotes after FROM or JOIN.
The name of TABLE in the query is `dataset` or its file name without the extension. Requires the
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
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="[TABLE] QUERY",
        help="SELECT ... FROM 'path/of/table.lance', or a table and a query of it",
    )
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

    *tables_before, query = arguments.texts
    if len(tables_before) > 1:
        arguments.usage_error("pass one table before the query, and others with --table NAME=URI")
    for uri in tables_before:
        uris |= dict.fromkeys(("dataset", _name_of(uri)), uri)

    def named(match: re.Match[str]) -> str:
        name = f"table {len(uris)}"
        uris[name] = match[3].replace("''", "'")
        return f'{match[1]}{match[2]}"{name}"'

    query = _PATH.sub(named, query)
    tables = {name: dataset(uri, storage_options=options) for name, uri in uris.items()}
    out.rows(sql(query, tables=tables).to_table())
    return ExitCode.DONE


def _name_of(uri: str) -> str:
    """Return the name of a table in a query.

    >>> _name_of("s3://bucket/shop/sales.lance")
    'sales'
    """
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".lance")

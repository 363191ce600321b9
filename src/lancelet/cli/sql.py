"""`lancelet sql [TABLE] QUERY`: runs a query over tables.

    lancelet sql shop/sales.lance "SELECT city, count(*) FROM sales GROUP BY city"
    lancelet sql "SELECT city, count(*) FROM shop/sales.lance GROUP BY city"
    lancelet sql "SELECT * FROM sales WHERE price > 3" --table sales=shop/sales.lance

A table is given before the query, by `--table`, or by its path after FROM or JOIN. A path with
other endings than `.lance` is in single quotes, or starts with `/`, `./`, `../` or a scheme. The
name of TABLE in the query is `dataset` or its file name without the extension. Requires the extra
`sql`.
"""

from __future__ import annotations

import argparse
import re
from typing import Final

from lancelet.cli.catalogs import path_of
from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_catalog,
    add_full,
    add_storage_options,
    catalog_of,
    open_version,
    storage_options_of,
)
from lancelet.dataset.sql.duckdb_engine import TABLES_HINT
from lancelet.dataset.sql.errors import SqlError
from lancelet.dataset.sql.tables import sql
from lancelet.errors import InvalidInputError

_PATH: Final = re.compile(
    r"""
    \b(?:FROM|JOIN)\s+
        (?: '(?P<text>(?:[^']|'')+)' | "(?P<name>(?:[^"]|"")+)" | (?P<bare>[^\s'"(),;]+) )
    | '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""A table after FROM or JOIN; or a literal, a name or a comment, which contain no tables."""
_LOOKS_LIKE_PATH: Final = re.compile(
    r"(?:\.{0,2}/|~/|[a-z][a-z0-9+.-]*://).+|.*\.lance/?", re.DOTALL | re.IGNORECASE
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="[TABLE] QUERY",
        help="SELECT ... FROM path/of/table.lance, or a table and a query of it",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME=URI",
        help="a table, and its name in the query; may be repeated",
    )
    add_full(parser)
    add_storage_options(parser)
    add_catalog(parser)


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
    catalog = catalog_of(arguments)
    for uri in tables_before:
        name = _name_of(uri) if catalog is None else path_of(uri)[-1]
        uris |= dict.fromkeys(("dataset", name), uri)

    def named(match: re.Match[str]) -> str:
        text, name, bare = match["text"], match["name"], match["bare"]
        if text is not None:
            path: str | None = text.replace("''", "'")
        else:
            path = bare if name is None else name.replace('""', '"')
            if path is None or path in uris or not _LOOKS_LIKE_PATH.fullmatch(path):
                return match[0]
        table = f"table {len(uris)}"
        uris[table] = path
        group = "text" if text is not None else "bare" if name is None else "name"
        start = match.start(group) - match.start() - (group != "bare")
        return f'{match[0][:start]}"{table}"'

    query = _PATH.sub(named, query)
    tables = {name: open_version(uri, None, options, catalog) for name, uri in uris.items()}
    try:
        rows = sql(query, tables=tables).to_table()
    except SqlError as error:
        hint = "Pass the path of a table, such as FROM shop/sales.lance, or --table NAME=URI"
        raise SqlError(error.message.replace(TABLES_HINT, hint), **error.facts) from error
    out.rows(rows, full=arguments.full)
    return ExitCode.DONE


def _name_of(uri: str) -> str:
    """Return the name of a table in a query.

    >>> _name_of("s3://bucket/shop/sales.lance")
    'sales'
    """
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".lance")

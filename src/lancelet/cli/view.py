"""`lancelet view [FOLDER]`: shows tables in the browser. Serves the local machine only.

lancelet view shop/             all tables below a folder
lancelet view shop/t.lance      one table
lancelet view --catalog glue    all tables of a catalog
"""

from __future__ import annotations

import argparse
import webbrowser

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_catalog,
    add_storage_options,
    catalog_of,
    storage_options_of,
)
from lancelet.errors import InvalidInputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument(
        "uri",
        nargs="?",
        help="a table or a folder, by default the current folder; or with --catalog a namespace, "
        "by default all",
    )
    add_storage_options(parser)
    add_catalog(parser)
    parser.add_argument("--port", type=int, help="by default one that depends on the folder")
    parser.add_argument("--write", action="store_true", help="allow changes from the page")
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address without opening a browser"
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Serve until interrupted."""
    from lancelet.cli.viewer.server import serve  # noqa: PLC0415 - not needed by other commands
    from lancelet.cli.viewer.tables import Shown  # noqa: PLC0415 - the same

    options, catalog = storage_options_of(arguments), catalog_of(arguments)
    root = arguments.uri or ("." if catalog is None else "")
    shown = Shown(root, options, can_write=arguments.write, catalog=catalog)
    shown.names()  # raises if the folder or namespace does not exist

    def started(address: str) -> None:
        out.text(address, {"address": address})
        out.stream.flush()
        if not arguments.no_browser:
            webbrowser.open(address)

    try:
        serve(shown, arguments.port, started)
    except (OSError, OverflowError) as error:
        raise InvalidInputError(
            f"the server cannot listen on the port ({error}); omit --port for a free one",
            port=arguments.port,
        ) from error
    return ExitCode.DONE

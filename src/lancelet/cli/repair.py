"""`lancelet repair TABLE`: repairs findings of check in a new version; previews by default."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table, storage_options_of
from lancelet.dataset import dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument(
        "--drop-fragment",
        type=int,
        action="append",
        default=[],
        metavar="ID",
        help="drop a fragment and its rows; may be repeated",
    )
    parser.add_argument(
        "--restore-fragment",
        type=int,
        action="append",
        default=[],
        metavar="ID",
        help="take a fragment from --source; may be repeated",
    )
    parser.add_argument("--source", help="an older version, by number, or the URI of a copy")
    parser.add_argument(
        "--drop-index", action="append", default=[], metavar="NAME", help="drop an index"
    )
    parser.add_argument(
        "--rebuild-index", action="append", default=[], metavar="NAME", help="rebuild an index"
    )
    parser.add_argument("--rebuild-counts", action="store_true", help="count rows in the files")
    parser.add_argument(
        "--apply", action="store_true", help="apply the repair; otherwise only preview it"
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the repairs, applied or previewed."""
    table = open_table(arguments)
    source = arguments.source
    report = table.repair(
        drop_fragments=arguments.drop_fragment,
        restore_fragments=arguments.restore_fragment,
        source=(
            int(source)
            if source is not None and source.isdigit()
            else source and dataset(source, storage_options=storage_options_of(arguments))
        ),
        drop_indices=arguments.drop_index,
        rebuild_counts=arguments.rebuild_counts,
        rebuild_indices=arguments.rebuild_index,
        dry_run=not arguments.apply,
    )
    out.facts({"done": arguments.apply, **asdict(report)})
    if not arguments.apply:
        out.warn("nothing was changed; repeat with --apply to apply the repair")
    return ExitCode.DONE

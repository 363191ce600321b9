"""`lancelet ingest SOURCE TARGET`: loads files into a table with Spark, locally or on a cluster.

lancelet reads folders of Parquet files, Delta tables and raw files with its own tasks. CSV, JSON
and all other formats are read with the Spark reader of that name. Requires the extra `spark`.
"""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_storage_options, storage_options_of
from lancelet.errors import InvalidInputError, UnsupportedError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument("source", metavar="SOURCE", help="a folder or a Delta table")
    parser.add_argument("target", metavar="TARGET", help="the table")
    add_storage_options(parser)
    parser.add_argument(
        "--source-format",
        help="parquet, delta, files, or a format of Spark; by default detected",
    )
    parser.add_argument(
        "--mode",
        choices=("create", "append", "overwrite"),
        default="append",
        help="what to do if the table exists",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the Spark reader, such as header=true; may be repeated",
    )
    parser.add_argument("--master", help="a Spark master; by default local[*]")
    parser.add_argument("--remote", help="a Spark Connect server, such as sc://host:15002")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Load the files, and print the version, the number of rows and the duration."""
    try:
        from lancelet.spark import loading  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "ingest requires the extra `spark`: pip install 'lancelet[spark]'", missing=error.name
        ) from error
    spark = loading.open_session(arguments.master, arguments.remote)
    try:
        done = loading.load(
            arguments.source,
            arguments.target,
            source_format=arguments.source_format,
            mode=arguments.mode,
            read_options=_read_options(arguments.option),
            storage_options=storage_options_of(arguments),
            progress=out.bar(),
            spark=spark,
        )
    finally:
        spark.stop()
    work = done.report.work
    out.facts(
        {
            "target": arguments.target,
            "version": done.version,
            "rows": done.num_rows,
            "read_bytes": work.read_bytes,
            "written_bytes": work.written_bytes,
            "requests": work.requests,
            "task_seconds": round(work.seconds, 3),
        }
    )
    return ExitCode.DONE


def _read_options(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise InvalidInputError("--read-option requires KEY=VALUE", found=text)
        found[key] = value
    return found

"""`lancelet convert SOURCE TARGET`: a table from Parquet, or Parquet from a table.

The source is Parquet if it is a file or folder of it; then the target is a table. Else the source
is a table and the target a file of Parquet. Rows stream through, so size does not matter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output, ProgressLine
from lancelet.cli.table_arguments import (
    add_storage_options,
    add_version,
    open_table,
    storage_options_of,
)
from lancelet.dataset import write_dataset
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    UnsupportedError,
)
from lancelet.io.durable import as_storage_errors

_SUFFIXES: Final = (".parquet", ".pq")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("uri", metavar="SOURCE", help="a table, or a file or folder of Parquet")
    parser.add_argument("target", metavar="TARGET", help="what to write")
    add_storage_options(parser)
    add_version(parser)
    parser.add_argument("--columns", help="names with commas between; all if not given")
    parser.add_argument("--filter", help="SQL; only of a table")
    parser.add_argument(
        "--mode",
        choices=("create", "append", "overwrite"),
        default="create",
        help="what to do if the target is there",
    )
    parser.add_argument("--compression", default="zstd", help="of Parquet; zstd if not given")
    parser.add_argument("--data-storage-version", help="of a new table, such as 2.1")
    parser.add_argument(
        "--stable-row-ids", action="store_true", help="rows of a new table keep their ids"
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Convert, and print how many rows there were."""
    if _is_parquet(arguments.uri):
        with _errors_of_parquet(arguments.uri):
            rows = _to_table(arguments, out)
    else:
        with _errors_of_parquet(arguments.target):
            rows = _to_parquet(arguments, out)
    out.facts({"source": arguments.uri, "target": arguments.target, "rows": rows})
    return ExitCode.DONE


def _is_parquet(source: str) -> bool:
    if source.endswith(_SUFFIXES):
        return True
    folder = Path(source)
    return folder.is_dir() and any(next(folder.rglob(f"*{end}"), None) for end in _SUFFIXES)


@contextmanager
def _errors_of_parquet(path: str) -> Iterator[None]:
    """Translate what Arrow and the system say about Parquet at a path into our errors."""
    try:
        with as_storage_errors(path):
            yield
    except pa.ArrowInvalid as error:
        raise CorruptDataError("this is not sound Parquet", path=path, reason=str(error)) from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(
            "Parquet cannot hold it; choose other columns", path=path, reason=str(error)
        ) from error


def _to_table(arguments: argparse.Namespace, out: Output) -> int:
    if arguments.filter is not None or arguments.at is not None:
        raise InvalidInputError("only the rows of a table can be chosen by --filter or --at")
    source = pyarrow.dataset.dataset(arguments.uri, format="parquet")
    names = arguments.columns.split(",") if arguments.columns else source.schema.names
    scanner = source.scanner(columns=names)
    progress = out.progress("convert", source.count_rows())
    schema = scanner.projected_schema
    write_dataset(
        pa.RecordBatchReader.from_batches(schema, _counted(scanner.to_batches(), progress)),
        arguments.target,
        mode=arguments.mode,
        storage_options=storage_options_of(arguments),
        data_storage_version=arguments.data_storage_version,
        enable_stable_row_ids=arguments.stable_row_ids,
    )
    return progress.done


def _to_parquet(arguments: argparse.Namespace, out: Output) -> int:
    target = Path(arguments.target)
    if arguments.mode == "append":
        raise InvalidInputError("a file of Parquet cannot be appended to", target=str(target))
    if arguments.mode == "create" and target.exists():
        raise AlreadyExistsError("the file is there already", target=str(target))
    table = open_table(arguments)
    names = arguments.columns.split(",") if arguments.columns else None
    scanner = table.scanner(columns=names, filter=arguments.filter)
    total = table.count_rows() if arguments.filter is None else 0
    progress = out.progress("convert", total)
    partial = target.with_name(f"{target.name}.unfinished")
    try:
        schema = scanner.projected_schema
        with pq.ParquetWriter(partial, schema, compression=arguments.compression) as writer:
            for batch in _counted(scanner.to_batches(), progress):
                writer.write_batch(batch)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return progress.done


def _counted(batches: Iterator[pa.RecordBatch], progress: ProgressLine) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        progress.advance(batch.num_rows)

"""`lancelet convert SOURCE TARGET`: converts between Lance tables and other formats.

The extension selects the format: .parquet, .csv, .json or .jsonl (one JSON object per line), .arrow
or .feather. A folder contains files of one format, or a Delta or Iceberg table. Any other path is a
Lance table; exactly one of source and target must be one. Rows are streamed, so memory use does not
grow with the size of the source. CSV files encode lists and structs as JSON and binary as base64.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

from lancelet.cli.catalogs import path_of
from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output, ProgressLine, cell_text, json_line
from lancelet.cli.table_arguments import (
    add_catalog,
    add_scan_options,
    add_storage_options,
    add_version,
    catalog_of,
    columns_of,
    open_table,
    storage_options_of,
)
from lancelet.dataset import write_dataset
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from lancelet.expr.python_values import values_of
from lancelet.io.durable import translating_os_errors

_PRINTED_SECONDS: Final = 30_000 * 365 * 86_400
"""Arrow prints dates and timestamps within this distance from 1970."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FORMATS: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument("uri", metavar="SOURCE", help="a table, or files or a folder of them")
    parser.add_argument(
        "target", metavar="TARGET", help="the target; its extension selects the format"
    )
    parser.add_argument(
        "--to",
        choices=("lance", "delta", "iceberg"),
        help="the format of a target without an extension",
    )
    add_storage_options(parser)
    add_catalog(parser)
    add_version(parser)
    add_scan_options(parser, "--columns", "--filter")
    parser.add_argument(
        "--mode",
        choices=("create", "append", "overwrite"),
        default="create",
        help="what to do if the target exists",
    )
    parser.add_argument(
        "--compression", default="zstd", help="compression of Parquet files; by default zstd"
    )
    parser.add_argument("--data-storage-version", help="file version of a new table, such as 2.1")
    parser.add_argument(
        "--stable-row-ids", action="store_true", help="enable stable row ids in a new table"
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Convert, and print the number of rows."""
    source, target = format_of(arguments.uri), format_of(arguments.target)
    if arguments.to is not None and target in (None, "delta", "iceberg"):
        target = None if arguments.to == "lance" else arguments.to
    if source is not None and target is None:
        with translating_os_errors(arguments.uri), _translating_read_errors(arguments.uri):
            rows = _to_table(arguments, source, out)
    elif source is None and target is not None:
        with translating_os_errors(arguments.target), _translating_write_errors(arguments.target):
            rows = _from_table(arguments, target, out)
    else:
        raise InvalidInputError(
            f"exactly one of source and target must be a Lance table{_extension_hint(arguments)}",
            source=source or "lance",
            target=target or "lance",
        )
    out.facts({"source": arguments.uri, "target": arguments.target, "rows": rows})
    return ExitCode.DONE


def _extension_hint(arguments: argparse.Namespace) -> str:
    """Return the known extensions if a path has another one."""
    for path in (arguments.target, arguments.uri):
        suffix = Path(path).suffix.lower()
        if suffix not in (*_FORMATS, ".lance", "") and not Path(path).exists():
            extensions = ", ".join(_FORMATS)
            return f"; {suffix} is not the extension of a file format; use {extensions}, or --to"
    return ""


def format_of(path: str) -> str | None:
    """Return the format of a path by its extension or the contents of the folder; None for Lance.

    >>> format_of("a/b.csv"), format_of("a/b.lance")
    ('csv', None)
    """
    file_format = _FORMATS.get(Path(path).suffix.lower())
    folder = Path(path)
    if file_format is not None or not folder.is_dir():
        return file_format
    if (folder / "_delta_log").is_dir():
        return "delta"
    if any((folder / "metadata").glob("*.metadata.json")):
        return "iceberg"
    if (folder / "_versions").is_dir():
        return None
    found = (_FORMATS.get(file.suffix.lower()) for file in folder.rglob("*"))
    return next((each for each in found if each is not None), None)


@contextmanager
def _translating_read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CorruptDataError(
            "the contents of the file do not match its extension", path=path, reason=str(error)
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(
            "the file contains values that cannot be read", path=path, reason=str(error)
        ) from error


@contextmanager
def _translating_write_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedError(
            "the format does not support these values; select other columns with --columns",
            path=path,
            reason=str(error),
        ) from error


def _to_table(arguments: argparse.Namespace, source_format: str, out: Output) -> int:
    if arguments.filter is not None or arguments.at is not None:
        raise InvalidInputError("--filter and --at require a table as the source")
    source, total = _open_source(arguments.uri, source_format)
    names = columns_of(arguments)
    if names is not None:
        missing = sorted(set(names) - set(source.schema.names))
        if missing:
            raise InvalidInputError(
                "unknown source column", missing=missing, available=source.schema.names
            )
        schema = pa.schema([source.schema.field(name) for name in names])
        batches: Iterator[pa.RecordBatch] = (batch.select(names) for batch in source)
    else:
        schema, batches = source.schema, iter(source)
    progress = out.progress("convert", total)
    rows = pa.RecordBatchReader.from_batches(schema, _counted(batches, progress))
    options: dict[str, Any] = {
        "mode": arguments.mode,
        "storage_options": storage_options_of(arguments),
        "data_storage_version": arguments.data_storage_version,
        "enable_stable_row_ids": arguments.stable_row_ids,
    }
    catalog = catalog_of(arguments)
    if catalog is None:
        write_dataset(rows, arguments.target, **options)
    else:
        catalog.write(rows, path_of(arguments.target), **options)
    return progress.done


def _open_source(path: str, source_format: str) -> tuple[pa.RecordBatchReader, int]:
    """Return the rows and their number, 0 if unknown."""
    match source_format:
        case "delta":
            source = _module("deltalake", "delta").DeltaTable(path).to_pyarrow_dataset()
        case "iceberg":
            module = _module("pyiceberg.table", "iceberg")
            newest = max((Path(path) / "metadata").glob("*.metadata.json"), key=_metadata_number)
            scan = module.StaticTable.from_metadata(str(newest)).scan()
            return scan.to_arrow_batch_reader(), 0
        case _:
            source = pyarrow.dataset.dataset(path, format=source_format)
    total = source.count_rows() if source_format in ("parquet", "ipc") else 0
    return source.scanner().to_reader(), total


def _metadata_number(file: Path) -> int:
    """Return the number of an Iceberg metadata file: `v12.metadata.json` or `00012-...`."""
    found = re.match(r"v?(\d+)", file.name)
    return int(found[1]) if found else -1


def _module(name: str, extra: str) -> Any:
    from importlib import import_module  # noqa: PLC0415  imports an optional package

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"this needs the extra `{extra}`: pip install 'lancelet[{extra}]'", missing=error.name
        ) from error


def _from_table(arguments: argparse.Namespace, target_format: str, out: Output) -> int:
    target = Path(arguments.target)
    if target_format == "iceberg" and arguments.mode != "create":
        raise InvalidInputError(
            "cannot modify an existing Iceberg table; convert to a new one with --mode create",
            target=str(target),
        )
    if arguments.mode == "append" and target_format != "delta":
        raise InvalidInputError(
            "--mode append is supported only for Delta targets", target=str(target)
        )
    if arguments.mode == "create" and target.exists():
        raise AlreadyExistsError(
            "the target already exists; replace it with --mode overwrite", target=str(target)
        )
    table = open_table(arguments)
    names = columns_of(arguments)
    scanner = table.scanner(columns=names, filter=arguments.filter)
    progress = out.progress("convert", table.count_rows() if arguments.filter is None else 0)
    schema, batches = scanner.projected_schema, _counted(scanner.to_batches(), progress)
    if target_format == "delta":
        modes = {"create": "error", "append": "append", "overwrite": "overwrite"}
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        _module("deltalake", "delta").write_deltalake(
            str(target), reader, mode=modes[arguments.mode]
        )
        return progress.done
    if target_format == "iceberg":
        _write_iceberg(target, pa.RecordBatchReader.from_batches(schema, batches))
        return progress.done
    if not target.parent.is_dir():
        raise NotFoundError(
            "the folder of the target does not exist; create it", folder=str(target.parent)
        )
    partial = target.with_name(f"{target.name}.unfinished")
    try:
        _WRITERS[target_format](partial, schema, batches, arguments)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return progress.done


def _write_parquet(
    path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], given: argparse.Namespace
) -> None:
    schema = parquet_schema(schema)
    with pq.ParquetWriter(path, schema, compression=given.compression) as writer:
        for batch in batches:
            writer.write_batch(batch.cast(schema))


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose structs have nullable fields.

    The descriptor of a null blob has null fields, which Parquet rejects in fields that are not
    nullable.
    """
    return pa.schema([_nullable_within(field) for field in schema], metadata=schema.metadata)


def _nullable_within(field: pa.Field) -> pa.Field:
    if not pa.types.is_struct(field.type):
        return field
    children = [_nullable_within(child).with_nullable(True) for child in field.type]
    return field.with_type(pa.struct(children))


def _write_iceberg(target: Path, reader: pa.RecordBatchReader) -> None:
    """Write a new table through a temporary catalog; any catalog can register the table."""
    catalog = _module("pyiceberg.catalog.memory", "iceberg").InMemoryCatalog("lancelet")
    unsupported = _module("pyiceberg.io.pyarrow", "iceberg").UnsupportedPyArrowTypeException
    catalog.create_namespace("lancelet")
    location = str(target.absolute())
    try:
        table = catalog.create_table("lancelet.table", reader.schema, location)
        table.append(reader)
    except unsupported as error:
        raise UnsupportedError(
            "Iceberg does not support these values; select other columns with --columns",
            reason=str(error),
        ) from error


def _write_csv(
    path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], _: argparse.Namespace
) -> None:
    as_text = [number for number, field in enumerate(schema) if _is_beyond_csv(field.type)]
    for number in as_text:
        schema = schema.set(number, schema.field(number).with_type(pa.string()))
    with path.open("wb") as file, pyarrow.csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            columns = batch.columns
            for number in as_text:
                columns[number] = _texts(columns[number])
            far = [number for number, each in enumerate(columns) if _has_far_moments(each)]
            if not far:
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                continue
            for number in far:
                columns[number] = _texts(columns[number])
            rows = pa.RecordBatch.from_arrays(columns, names=schema.names)
            pyarrow.csv.write_csv(rows, file, pyarrow.csv.WriteOptions(include_header=False))


def _texts(array: pa.Array) -> pa.Array:
    texts = [None if value is None else cell_text(value) for value in values_of(array)]
    return pa.array(texts, pa.string())


def _has_far_moments(array: pa.Array) -> bool:
    """Return whether a column has dates or timestamps that Arrow cannot print."""
    if not pa.types.is_date(array.type) and not pa.types.is_timestamp(array.type):
        return False
    is_days = pa.types.is_date32(array.type)
    unit = getattr(array.type, "unit", "D" if is_days else "ms")
    bound = _PRINTED_SECONDS * _PER_SECOND[unit] if unit != "D" else _PRINTED_SECONDS // 86_400
    bounds = pc.min_max(array.cast(pa.int32() if is_days else pa.int64())).as_py()
    return bounds["min"] is not None and max(-bounds["min"], bounds["max"]) > bound


def _is_beyond_csv(data_type: pa.DataType) -> bool:
    kinds = (
        pa.types.is_nested,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    )
    return isinstance(data_type, pa.BaseExtensionType) or any(kind(data_type) for kind in kinds)


def _write_json(
    path: Path, _: pa.Schema, batches: Iterator[pa.RecordBatch], __: argparse.Namespace
) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            columns = map(values_of, batch.columns)
            for values in zip(*columns, strict=True):
                file.write(json_line(dict(zip(batch.schema.names, values, strict=True))) + "\n")


def _write_ipc(
    path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], _: argparse.Namespace
) -> None:
    with pa.ipc.new_file(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


_Write = Callable[[Path, pa.Schema, Iterator[pa.RecordBatch], argparse.Namespace], None]
_WRITERS: Final[dict[str, _Write]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "json": _write_json,
    "ipc": _write_ipc,
}


def _counted(batches: Iterator[pa.RecordBatch], progress: ProgressLine) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        progress.advance(batch.num_rows)

"""Runs statements over one dataset with DataFusion, the engine of the reference implementation.

The dialect, its types and its functions are DataFusion's. Conditions on columns are pushed down to
the scan of the dataset. Statements can only read: DDL, DML, `COPY` and `SET` are errors.

Two kinds of column have another form within the engine, so that functions can take them:

    JSON           JSONB, as stored; JSON again in the result
    GeoArrow       WKB, in statements that call functions of geometries
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lancelet.dataset.sql.errors import SqlError
from lancelet.dataset.sql.table_provider import EngineColumn, SqlTable
from lancelet.encodings.jsonb import documents_from_storage, documents_to_storage
from lancelet.errors import LanceletError, UnsupportedError
from lancelet.expr.functions.base import Function, Takes, broadcast, printable, real, text
from lancelet.expr.functions.documents import JSON_FUNCTIONS
from lancelet.expr.functions.geometry import FROM_ARROW, GEOMETRY_FUNCTIONS
from lancelet.expr.functions.registry import FUNCTIONS
from lancelet.format.geometry import WKB, geometry_kind, to_wkb

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

_EXTENSION_NAME: Final = b"ARROW:extension:name"
_EXTENSION_METADATA: Final = b"ARROW:extension:metadata"
_JSONB_NAME: Final = b"lance.json"
_WKB_NAME: Final = b"geoarrow.wkb"
_SHORT: Final = b"lancelet:binary"
"""Marks binary columns, which functions accept as large binary."""
_GEOMETRY_PREFIX: Final = "st_"
_USED_BY: Final[set[int]] = set()
"""Ids of the processes that used DataFusion: this process and the ancestors it was forked from."""
_SETTINGS: Final = {
    # Round-robin repartitioning would lose the order of rows without being faster.
    "datafusion.optimizer.enable_round_robin_repartition": "false",
}


def run(
    query: str, name: str, dataset: LanceDataset, batch_size: int
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows of a statement over a dataset that is registered as `name`.

    Raises:
        SqlError: If the statement cannot be parsed or planned, or does more than read.
        UnsupportedError: If DataFusion is not installed, or the process was forked from one that
            used it.
    """
    datafusion = _datafusion_module()
    failures: list[Exception] = []
    describe = partial(_error_of, query=query, name=name, failures=failures)
    settings = {**_SETTINGS, "datafusion.execution.batch_size": str(batch_size)}
    context = datafusion.SessionContext(datafusion.SessionConfig(settings))
    read_only = (
        datafusion.SQLOptions()
        .with_allow_ddl(allow=False)
        .with_allow_dml(allow=False)
        .with_allow_statements(allow=False)
    )
    # GeoArrow geometries would need a function per geometry type.
    with_geometry = _GEOMETRY_PREFIX in query.lower()
    schema: pa.Schema = dataset.scanner().projected_schema
    columns = _engine_columns(schema, with_geometry=with_geometry)
    context.register_dataset(name, SqlTable(dataset, schema, columns, failures))
    for function in _functions(with_geometry=with_geometry):
        _register(context, datafusion, function, failures)
    try:
        frame = context.sql_with_options(query, read_only)
        batches = (batch.to_pyarrow() for batch in frame.execute_stream())
        first = next(batches, None)
    except Exception as error:  # DataFusion raises `Exception` itself
        raise describe(error) from error
    # The plan's schema has no nullability.
    schema = frame.schema() if first is None else first.schema
    return _result_schema(schema), _rows(first, batches, describe)


def _datafusion_module() -> Any:
    try:
        import datafusion  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError(
            "LanceDataset.sql requires DataFusion; install `lancelet[sql]`"
        ) from error
    _USED_BY.add(os.getpid())
    if len(_USED_BY) > 1:
        raise UnsupportedError(
            "a forked process cannot run SQL after its parent did, because the threads of "
            "DataFusion do not survive a fork; start processes by spawn or forkserver"
        )
    return datafusion


def _rows(
    batch: pa.RecordBatch | None,
    others: Iterator[pa.RecordBatch],
    describe: Callable[[Exception], Exception],
) -> Iterator[pa.RecordBatch]:
    while batch is not None:
        yield _result(batch)
        try:
            batch = next(others, None)
        except Exception as error:  # DataFusion raises `Exception` itself
            raise describe(error) from error


def _error_of(error: Exception, query: str, name: str, failures: Sequence[Exception]) -> Exception:
    """Return the original error of the scan or function; DataFusion passes on only its text."""
    if failures and isinstance(failures[0], LanceletError):
        return failures[0]
    message = str(failures[0] if failures else error).removeprefix("DataFusion error: ")
    return SqlError(message, query=query, tables=[name])


# --- columns -----------------------------------------------------------------------------------


def _engine_columns(schema: pa.Schema, *, with_geometry: bool) -> dict[str, EngineColumn]:
    columns: dict[str, EngineColumn] = {}
    for field in schema:
        metadata = dict(field.metadata or {})
        kind = geometry_kind(metadata.get(_EXTENSION_NAME, b"").decode())
        if isinstance(field.type, pa.JsonType):
            extension = {_EXTENSION_NAME: _JSONB_NAME, _EXTENSION_METADATA: b""}
            stored = field.with_type(pa.large_binary()).with_metadata({**metadata, **extension})
            columns[field.name] = stored, lambda array: documents_to_storage(array.storage)
        elif with_geometry and kind is not None and kind != WKB:
            stored = field.with_type(pa.large_binary())
            stored = stored.with_metadata({**metadata, _EXTENSION_NAME: _WKB_NAME})
            columns[field.name] = stored, partial(to_wkb, kind=kind)
        elif with_geometry and pa.types.is_binary(field.type):
            stored = field.with_type(pa.large_binary()).with_metadata({**metadata, _SHORT: b""})
            columns[field.name] = stored, lambda array: array.cast(pa.large_binary())
    return columns


def _result_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a result with the original types of converted columns."""
    return pa.schema([_result_field(field) for field in schema], metadata=schema.metadata)


def _result_field(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    if not pa.types.is_large_binary(field.type):
        return field
    if metadata.get(_EXTENSION_NAME) == _JSONB_NAME:
        del metadata[_EXTENSION_NAME]
        metadata.pop(_EXTENSION_METADATA, None)
        return field.with_type(pa.json_(pa.string())).with_metadata(metadata)
    if _SHORT in metadata:
        del metadata[_SHORT]
        return field.with_type(pa.binary()).with_metadata(metadata)
    return field


def _result(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = _result_schema(batch.schema)
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        if isinstance(field.type, pa.JsonType):
            arrays.append(documents_from_storage(array))
        else:
            arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# --- functions ---------------------------------------------------------------------------------


_ARGUMENT_TYPES: Final[dict[Takes, pa.DataType]] = {
    text: pa.string(),
    printable: pa.string(),
    real: pa.float64(),
}
_SEARCHING: Final = FUNCTIONS["contains_tokens"]
_WITH_CONSTANTS: Final = frozenset(
    {"st_simplify", *(function.names[0] for function in (*JSON_FUNCTIONS, _SEARCHING))}
)


def _functions(*, with_geometry: bool) -> Iterator[Function]:
    yield from JSON_FUNCTIONS
    yield _SEARCHING
    if with_geometry:
        # The form of its first argument is not known before the statement is planned.
        yield from (each for each in GEOMETRY_FUNCTIONS if FROM_ARROW not in each.names)


def _register(context: Any, datafusion: Any, function: Function, failures: list[Exception]) -> None:
    """Register a function without its optional arguments; documents and geometries are binary."""
    takes = function.takes[: len(function.takes) - function.optional]
    types = [_ARGUMENT_TYPES.get(take, pa.large_binary()) for take in takes]
    gives = function.gives
    assert not callable(gives), "the result type must not depend on the arguments"
    call = partial(_call, function, gives, failures)
    for name in function.names:
        context.register_udf(datafusion.udf(call, types, gives, "immutable", name))


def _call(
    function: Function, gives: pa.DataType, failures: list[Exception], *columns: pa.Array
) -> pa.Array:
    try:
        if not len(columns[0]):
            return pa.nulls(0, gives)
        if function.names[0] in _WITH_CONSTANTS:
            return _call_by_constants(function, *columns)
        return function.compute(*columns)
    except Exception as error:
        failures.append(error)
        raise


def _call_by_constants(function: Function, values: pa.Array, *arguments: pa.Array) -> pa.Array:
    """Call a function once per combination of its constant arguments."""
    codes = np.zeros(len(values), np.int64)
    for argument in arguments:
        encoded = argument.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    parts = []
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        constants = [argument[int(order[start])] for argument in arguments]
        found = function.compute(values.take(pa.array(order[start:stop])), *constants)
        parts.append(broadcast(found, stop - start))
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order, kind="stable")))

"""Convert input data of any supported type to a stream of record batches.

    table, batch, reader, scanner, dataset, batches    used as they are, read during the write
    dict of columns                                    two-dimensional arrays become vectors
    list or generator of dicts or dataclasses          one column per distinct key
    list of Pydantic models                            schema of the model class
    pandas, Polars, any object with an Arrow stream
    Hugging Face datasets, also streamed               with the metadata of their features

Polars strings are `large_string`, as in pylance, and a new table keeps that type. Rows appended to
a table are converted to its types by `lossless`.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.expr.data_types import is_bytes, is_text
from lancelet.format.blob_values import BlobType, blob_array
from lancelet.format.schema import Schema
from lancelet.values import dataclass

_CHUNK_ROWS: Final = 8192
_HUGGING_FACE_ROWS: Final = 1000
_TAKEN_ROWS: Final = 1 << 14
_MATRIX: Final = 2
_REPR_LENGTH_MAX: Final = 200
_REFUSALS: Final = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    UnicodeEncodeError,
)
"""Errors of Arrow for values that it cannot convert."""
_COLUMN_HINT: Final = "; a column needs a name: pass a dict such as {'values': column}"

Types: TypeAlias = Mapping[str, pa.DataType]


class RowsTypeError(InvalidInputError, TypeError):
    """An object cannot be converted to rows."""


class MixedValuesError(SchemaMismatchError, TypeError):
    """The values of a column have no common type."""


@dataclass(frozen=True, slots=True, eq=False)
class RowStream:
    """Record batches with a common schema; can be read once.

    Attributes:
        schema: The schema of all batches.
        batches: The rows.
        is_in_memory: Whether the rows are in memory already, so that buffering them is free.
        typed: Returns the same rows with other floating-point types in some columns. Set for Python
            values, whose types were inferred, and None for typed data.
        untyped: The columns whose types were inferred from Python values or belong to a data frame.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    is_in_memory: bool = False
    typed: Callable[[Types], RowStream] | None = None
    untyped: frozenset[str] = frozenset()


def read_rows(data: Any, schema: pa.Schema | None = None) -> RowStream:
    """Return the rows of `data`, converted to `schema` if given.

    >>> stream = read_rows([{"a": 1}, {"a": 2}])
    >>> stream.schema.names, sum(batch.num_rows for batch in stream.batches)
    (['a'], 2)
    """
    stream = _to_stream(data, schema)
    if schema is None or stream.schema.equals(schema, check_metadata=True):
        return stream
    return RowStream(schema, _converted(stream, schema))


def without_views(stream: RowStream) -> RowStream:
    """Convert string and binary views to the types that tables store; Arrow cannot take views.

    >>> stream = read_rows(pa.table({"a": pa.array(["x"], pa.string_view())}))
    >>> [str(batch["a"].type) for batch in without_views(stream).batches]
    ['string']
    """
    if not any(_has_views(field.type) for field in stream.schema):
        return stream
    stored = Schema.from_arrow(stream.schema).to_arrow()
    return RowStream(stored, _converted(stream, stored), stream.is_in_memory)


def _has_views(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_string_view(data_type)
        or pa.types.is_binary_view(data_type)
        or any(_has_views(data_type.field(index).type) for index in range(data_type.num_fields))
    )


def _to_stream(data: Any, schema: pa.Schema | None) -> RowStream:
    match data:
        case pa.Table():
            return RowStream(data.schema, iter(data.to_batches()), is_in_memory=True)
        case pa.RecordBatch():
            return RowStream(data.schema, iter([data]), is_in_memory=True)
        case pa.RecordBatchReader():
            return RowStream(data.schema, iter(data))
    hugging_face = sys.modules.get("datasets")
    if hugging_face is not None and type(data).__module__.split(".")[0] == "datasets":
        return _hugging_face_to_stream(data, hugging_face)
    if isinstance(data, Mapping):
        return _columns_to_stream(dict(data), schema)
    # Importing pyarrow.dataset imports pandas, which delays the start of Spark workers.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(data, datasets.Dataset):
        return _to_stream(data.scanner().to_reader(), None)
    if datasets is not None and isinstance(data, datasets.Scanner):
        return _to_stream(data.to_reader(), None)
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    if library == "pandas" and kind == "DataFrame":
        return _pandas_to_stream(data, schema)
    if library == "polars" and kind == "LazyFrame":
        return _to_stream(data.collect(), schema)
    if library == "polars" and kind == "DataFrame":
        return _with_untyped_lists(_to_stream(data.to_arrow(), None), schema)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return _columns_to_stream({name: data[name] for name in data.dtype.names}, schema)
    reason = None
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return _to_stream(pa.RecordBatchReader.from_stream(data), None)
        if hasattr(data, "__arrow_c_array__"):
            return _to_stream(pa.record_batch(data), None)
    except pa.ArrowInvalid as error:  # An object with Arrow values but no columns.
        reason = error
    is_column = library in ("numpy", "pandas", "polars", "pyarrow")
    if isinstance(data, Iterable) and not (is_column or isinstance(data, str | bytes)):
        return _iterable_to_stream(data, schema)
    hint = _COLUMN_HINT if is_column else _hint(data)
    raise RowsTypeError(
        f"cannot read rows from an object of this type{hint}", type=str(type(data))
    ) from reason


def _with_untyped_lists(stream: RowStream, schema: pa.Schema | None) -> RowStream:
    """Return a stream whose list columns may be stored as vectors."""
    untyped = frozenset() if schema is not None else frozenset(stream.schema.names)
    return dataclasses.replace(stream, untyped=untyped)


def _hint(data: Any) -> str:
    if isinstance(data, str | PurePath):
        return "; open a file first, for example with pyarrow.dataset.dataset(path)"
    return "; pass a list of rows" if _is_record(data) or _is_model(data) else ""


# --- columns of values ---------------------------------------------------------------------------


def _columns_to_stream(columns: Mapping[str, Any], schema: pa.Schema | None) -> RowStream:
    table = _columns_to_table(columns, schema)

    def typed(types: Types) -> RowStream:
        return _to_stream(_retype(table, columns, types), None)

    if schema is not None:
        return _to_stream(table, None)
    untyped = frozenset(
        name
        for name, values in columns.items()
        if not isinstance(values, pa.Array | pa.ChunkedArray)
    )
    return dataclasses.replace(_to_stream(table, None), typed=typed, untyped=untyped)


def _columns_to_table(columns: Mapping[str, Any], schema: pa.Schema | None) -> pa.Table:
    types = {} if schema is None else {field.name: field.type for field in schema}
    arrays = {
        name: _prepare_column(name, values, types.get(name)) for name, values in columns.items()
    }
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError("the columns have different lengths", lengths=lengths)
    with _adding_value_to_errors(lambda: arrays, types):
        return pa.Table.from_pydict(arrays, schema=schema)


@contextlib.contextmanager
def _adding_value_to_errors(
    columns: Callable[[], Mapping[str, Any]], types: Types
) -> Iterator[None]:
    """Add the column, row and value to errors of Arrow conversions."""
    try:
        yield
    except _REFUSALS as error:
        for name, values in columns().items():
            row = _first_refused(values, types.get(name))
            if row is not None:
                raise MixedValuesError(
                    (
                        "a value cannot be stored in a column with the preceding values: "
                        f"{error}{_value_hint(values[row])}"
                    ),
                    column=name,
                    row=row,
                    value=shorten(values[row]),
                    **({"expected": str(types[name])} if name in types else {}),
                ) from error
        raise


def _value_hint(value: object) -> str:
    """Return how to store a value of a library that has no column type."""
    library = type(value).__module__.split(".")[0]
    if library == "PIL":
        return (
            "; encode images first: buffer = io.BytesIO(); image.save(buffer, 'PNG'); "
            "buffer.getvalue()"
        )
    if library == "torch":
        return "; convert tensors with tensor.numpy()"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return "; convert integers of more than 64 bits to decimal.Decimal or str"
    return ""


def _first_refused(values: Any, target: pa.DataType | None) -> int | None:
    """Return the index of the first value that does not match the preceding ones, or None."""

    def is_refused(count: int) -> bool:
        try:
            pa.array(values[:count], target)
        except _REFUSALS:
            return True
        return False

    if isinstance(values, pa.Array | pa.ChunkedArray) or not is_refused(len(values)):
        return None
    return bisect.bisect_left(range(len(values)), True, key=lambda row: is_refused(row + 1))


def shorten(value: object) -> object:
    """Return a value for an error message, truncated if it is long."""
    text = repr(value)
    return value if len(text) <= _REPR_LENGTH_MAX else f"{text[:_REPR_LENGTH_MAX]}..."


def _prepare_column(name: str, values: Any, target: pa.DataType | None) -> Any:
    """Return a column in a form that Arrow accepts, with matrices and blobs as arrays."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidInputError(
            "a column must have a value for each row, as a list or an array",
            column=name,
            found=str(type(values)),
        )
    if not hasattr(values, "__len__"):
        values = list(values)
    if isinstance(values, np.ndarray) and values.ndim == _MATRIX:
        items = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(items, values.shape[1])
    if isinstance(values, np.ndarray) and values.ndim > _MATRIX:
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(values))
    if not _is_blob(target):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_to_blobs(chunk, target) for chunk in values.chunks], target)
    if isinstance(values, pa.Array):
        return _to_blobs(values, target)
    return pa.ExtensionArray.from_storage(target, _blob_storage(values, target))


def _is_blob(data_type: pa.DataType | None) -> bool:
    return isinstance(data_type, pa.BaseExtensionType) and (
        data_type.extension_name == BlobType().extension_name
    )


def _to_blobs(array: pa.Array, blob_type: pa.BaseExtensionType) -> pa.Array:
    """Convert binary values to inline blobs, and strings to blob URIs."""
    if is_bytes(array.type):
        children = {"data": array.cast(pa.large_binary())}
    elif is_text(array.type):
        children = {"uri": array.cast(pa.string())}
    else:
        return array
    parts = [
        children.get(part.name, pa.nulls(len(array), part.type)) for part in blob_type.storage_type
    ]
    mask = array.is_null() if array.null_count else None
    storage = pa.StructArray.from_arrays(parts, fields=list(blob_type.storage_type), mask=mask)
    return pa.ExtensionArray.from_storage(blob_type, storage)


def _blob_storage(values: Any, blob_type: pa.BaseExtensionType) -> pa.Array:
    blobs = blob_array(list(values)).storage
    parts = [blobs.field(part.name) for part in blob_type.storage_type]
    mask = blobs.is_null() if blobs.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(blob_type.storage_type), mask=mask)


def _retype(table: pa.Table, columns: Mapping[str, Any], types: Types) -> pa.Table:
    """Convert floating-point columns of Python values to other widths.

    Python floats have no width, so that 0.1 means the nearest value of the target type. Columns
    with values that do not fit keep their type.
    """
    for name, target in types.items():
        index = table.schema.get_field_index(name)
        values = columns[name]
        is_typed = isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray)
        if is_typed or not (_holds_floats(target) and _holds_floats(table.field(index).type)):
            continue
        try:
            array = pa.array(values, target)
        except _REFUSALS:
            continue  # The conversion of rows reports the row.
        table = table.set_column(index, table.field(index).with_type(target), array)
    return table


def _holds_floats(data_type: pa.DataType) -> bool:
    """Return whether a type is floating-point, or a list of floating-point values."""
    while not isinstance(data_type, pa.BaseExtensionType) and data_type.num_fields == 1:
        data_type = data_type.field(0).type
    return bool(pa.types.is_floating(data_type))


def _pandas_to_stream(frame: Any, schema: pa.Schema | None) -> RowStream:
    index: Any = getattr(frame, "index", None)
    # Arrow stores a RangeIndex as metadata, which does not describe the rows after a filter.
    is_named_range = type(index).__name__ == "RangeIndex" and index.name is not None
    preserve_index = True if is_named_range and schema is None else None
    if not frame.columns.is_unique:
        duplicates = frame.columns[frame.columns.duplicated()]
        raise InvalidInputError(
            "the frame has duplicate column names; rename the columns", columns=list(duplicates)
        )

    def columns() -> dict[str, Any]:
        return {name: frame[name].to_numpy() for name in frame}

    schema_types = {} if schema is None else {field.name: field.type for field in schema}
    with _adding_value_to_errors(columns, schema_types):
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=preserve_index)

    def typed(types: Types) -> RowStream:
        # Only object columns hold Python values; other columns have a type.
        object_types = {name: kind for name, kind in types.items() if _holds_objects(frame, name)}
        values = {name: list(frame[name].array) for name in object_types}
        return _to_stream(_retype(table, values, object_types), None)

    if schema is not None:
        return _to_stream(table, None)
    untyped = frozenset(name for name in table.schema.names if _holds_objects(frame, name))
    return dataclasses.replace(_to_stream(table, None), typed=typed, untyped=untyped)


def _holds_objects(frame: Any, name: str) -> bool:
    return name in frame.columns and bool(getattr(frame.dtypes[name], "hasobject", False))


# --- datasets of Hugging Face --------------------------------------------------------------------


def _hugging_face_to_stream(data: Any, library: Any) -> RowStream:
    """Return the rows of a Hugging Face dataset; images and audio become bytes and paths."""
    if isinstance(data, library.DatasetDict | library.IterableDatasetDict):
        raise InvalidInputError(
            "DatasetDict is not yet supported as rows: its splits are separate datasets. Write "
            "each to a table, or join them by `lancelet.hf.with_split_column`",
            splits=list(data),
        )
    if not isinstance(data, library.Dataset | library.IterableDataset):
        raise RowsTypeError("cannot read rows from an object of this type", type=str(type(data)))
    tables = iter(data.with_format("arrow").iter(batch_size=_HUGGING_FACE_ROWS))
    if data.features is None:
        first = next(tables, None)
        if first is None:
            raise InvalidInputError("a stream without rows must have features")
        schema, tables = first.schema, itertools.chain([first], tables)
    else:
        schema = data.features.arrow_schema
    if isinstance(data, library.Dataset) and data.data.table.schema.equals(schema):
        whole, indices = data.data.table, data._indices  # noqa: SLF001 - as stored
        if indices is None:
            return RowStream(schema, iter(whole.to_batches()))
        return RowStream(schema, _taken_rows(whole, indices.column(0)))

    def batches() -> Iterator[pa.RecordBatch]:
        for table in tables:
            yield from library.table.table_cast(table.select(schema.names), schema).to_batches()

    return RowStream(schema, batches())


def _taken_rows(table: pa.Table, indices: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """Yield rows of a shuffled or filtered dataset, which the library would copy one by one."""
    for start in range(0, len(indices), _TAKEN_ROWS):
        yield from table.take(indices.slice(start, _TAKEN_ROWS)).to_batches()


# --- rows one by one -----------------------------------------------------------------------------


def _iterable_to_stream(data: Iterable[Any], schema: pa.Schema | None) -> RowStream:
    rest = iter(data)
    first = next(rest, None)
    if _is_model(first):
        from lancelet.pydantic import models_to_table  # noqa: PLC0415 - an extra

        model: Any = type(first)
        return _with_untyped_lists(_to_stream(models_to_table(data, model, schema), None), schema)
    if isinstance(first, Mapping) or _is_record(first):
        if isinstance(data, Sequence):
            return _columns_to_stream(_rows_to_columns(data, schema), schema)
        return _rows_to_stream(itertools.chain([first], rest), schema)
    if first is None:
        if schema is None:
            raise InvalidInputError("an empty iterable requires a schema")
        return RowStream(schema, iter(()))
    if not isinstance(first, pa.RecordBatch | pa.Table):
        raise InvalidInputError(
            "an iterable of rows must yield batches, tables, dicts, dataclasses or models",
            found=str(type(first)),
        )
    return RowStream(first.schema, _batches(itertools.chain([first], rest)))


def _rows_to_stream(rows: Iterator[Any], schema: pa.Schema | None) -> RowStream:
    """Return the rows of an iterator in chunks; only one chunk is in memory at a time."""
    first = _rows_to_columns(list(itertools.islice(rows, _CHUNK_ROWS)), schema)
    inferred = _columns_to_table(first, schema)
    inferred_schema = inferred.schema

    def stream(begin: pa.Table) -> RowStream:
        return RowStream(begin.schema, _row_batches(begin, rows, strict=schema is None))

    def typed(types: Types) -> RowStream:
        return stream(_retype(inferred, first, types))

    if schema is not None:
        return stream(inferred)
    untyped = frozenset(inferred_schema.names)
    return dataclasses.replace(stream(inferred), typed=typed, untyped=untyped)


def _row_batches(first: pa.Table, rows: Iterator[Any], *, strict: bool) -> Iterator[pa.RecordBatch]:
    yield from first.to_batches()
    begin = first.num_rows
    while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
        columns = _rows_to_columns(chunk)
        unknown = sorted(columns.keys() - set(first.schema.names))
        if strict and unknown:
            raise SchemaMismatchError(
                "a row has columns that earlier rows lack; pass a schema",
                columns=unknown,
                rows=f"{begin} to {begin + len(chunk) - 1}",
            )
        arrays = []
        for field in first.schema:
            values = columns.get(field.name, [None] * len(chunk))
            try:
                array = pa.array(_prepare_column(field.name, values, field.type), field.type)
            except _REFUSALS as error:
                raise SchemaMismatchError(
                    f"the type of a value differs from preceding rows; pass a schema: {error}",
                    column=field.name,
                    expected=str(field.type),
                    rows=f"{begin} to {begin + len(chunk) - 1}",
                ) from error
            arrays.append(array)
        yield pa.RecordBatch.from_arrays(arrays, schema=first.schema)
        begin += len(chunk)


def _rows_to_columns(rows: Sequence[Any], schema: pa.Schema | None = None) -> dict[str, list[Any]]:
    """Return the values of rows by column; missing values and schema columns are null."""
    columns = _collect_values(rows)
    for name in () if schema is None else schema.names:
        columns.setdefault(name, [None] * len(rows))
    return columns


def _collect_values(rows: Sequence[Any]) -> dict[str, list[Any]]:
    if _is_record(rows[0]):
        fields = [field.name for field in dataclasses.fields(rows[0])]
        return {name: _to_plain_column([getattr(row, name) for row in rows]) for name in fields}
    names = list(rows[0])
    if set(map(len, rows)) == {len(names)}:
        with contextlib.suppress(KeyError):  # Some row has other keys.
            return {name: [row[name] for row in rows] for name in names}
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    return {name: [row.get(name) for row in rows] for name in names}


def _is_record(row: Any) -> bool:
    return dataclasses.is_dataclass(row) and not isinstance(row, type)


def _to_plain_column(values: list[Any]) -> list[Any]:
    """Convert dataclasses, also in lists, to dicts."""
    samples = (value[0] if isinstance(value, list) else value for value in values if _is_set(value))
    return [_to_plain(value) for value in values] if _is_record(next(samples, None)) else values


def _is_set(value: Any) -> bool:
    return value is not None and not (isinstance(value, list) and not value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_plain(each) for each in value]
    if not _is_record(value):
        return value
    fields = dataclasses.fields(value)
    return {field.name: _to_plain(getattr(value, field.name)) for field in fields}


def _is_model(row: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(row, pydantic.BaseModel)


def _batches(parts: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if isinstance(part, pa.Table):
            yield from part.to_batches()
        else:
            yield part


def _converted(stream: RowStream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in stream.batches:
        if set(batch.schema.names) != set(schema.names):
            raise SchemaMismatchError(
                "the batches do not have the columns of the given schema",
                expected=schema.names,
                found=batch.schema.names,
            )
        columns = [_cast(batch.column(field.name), field) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    if _is_blob(field.type):
        array = _to_blobs(array, field.type)
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"a column cannot be converted to the type of the schema: {error}",
            column=field.name,
            expected=str(field.type),
            found=str(array.type),
        ) from error

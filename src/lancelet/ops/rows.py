"""Rows to be written, in whatever form a caller has them, as one stream of batches.

table, batch, reader, scanner, dataset, batches    what is there, read as it is written
dict of columns                                    arrays of two dimensions are vectors
list or generator of dicts, dataclasses            every name that a row has is a column
list of Pydantic models                            the schema is that of their class
pandas, Polars, anything that offers an Arrow stream
Hugging Face data sets, streamed ones too          with the metadata of their features

Texts of Polars are `large_string`, as they are for the reference: a table that is made of them
keeps that type. Rows that are added to a table get its types: see `lossless`.
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
from lancelet.format.blob_values import BlobType, blob_array
from lancelet.format.schema import Schema
from lancelet.query.data_types import is_bytes, is_text
from lancelet.values import dataclass

_CHUNK_ROWS: Final = 8192
_HUGGING_FACE_ROWS: Final = 1000
_MATRIX: Final = 2
_SHOWN: Final = 200
_COLUMN_HINT: Final = "; a column needs a name: pass a dict such as {'values': column}"

Types: TypeAlias = Mapping[str, pa.DataType]


class RowsTypeError(InvalidInputError, TypeError):
    """An object has no rows."""


class MixedValuesError(SchemaMismatchError, TypeError):
    """Values of a column have no type in common."""


@dataclass(frozen=True, slots=True, eq=False)
class RowStream:
    """Batches and the schema they all have; can be read once.

    Attributes:
        schema: The schema of all batches.
        batches: The rows.
        is_in_memory: Whether they take memory anyway, whether or not they are kept.
        typed: For values of Python, whose types were guessed: returns the same rows, with other
            types for the numbers with a fraction in some columns. None for rows that have types.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    is_in_memory: bool = False
    typed: Callable[[Types], RowStream] | None = None


def read_rows_of(data: Any, schema: pa.Schema | None = None) -> RowStream:
    """Return the rows of `data`, converted to `schema` if one is given.

    >>> stream = read_rows_of([{"a": 1}, {"a": 2}])
    >>> stream.schema.names, sum(batch.num_rows for batch in stream.batches)
    (['a'], 2)
    """
    stream = _stream_of(data, schema)
    if schema is None or stream.schema.equals(schema, check_metadata=True):
        return stream
    return RowStream(schema, _converted(stream, schema))


def without_views(stream: RowStream) -> RowStream:
    """Return a stream with texts and bytes as tables store them: Arrow takes no rows of views.

    >>> stream = read_rows_of(pa.table({"a": pa.array(["x"], pa.string_view())}))
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
        or any(_has_views(data_type.field(place).type) for place in range(data_type.num_fields))
    )


def _stream_of(data: Any, schema: pa.Schema | None) -> RowStream:
    match data:
        case pa.Table():
            return RowStream(data.schema, iter(data.to_batches()), is_in_memory=True)
        case pa.RecordBatch():
            return RowStream(data.schema, iter([data]), is_in_memory=True)
        case pa.RecordBatchReader():
            return RowStream(data.schema, iter(data))
    hugging_face = sys.modules.get("datasets")
    if hugging_face is not None and type(data).__module__.split(".")[0] == "datasets":
        return _stream_of_hugging_face(data, hugging_face)
    if isinstance(data, Mapping):
        return _stream_of_columns(dict(data), schema)
    # The module imports pandas, which workers of Spark would wait for; without it nothing is one.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(data, datasets.Dataset):
        return _stream_of(data.scanner().to_reader(), None)
    if datasets is not None and isinstance(data, datasets.Scanner):
        return _stream_of(data.to_reader(), None)
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    if library == "pandas" and kind == "DataFrame":
        return _stream_of_pandas(data, schema)
    if library == "polars" and kind == "LazyFrame":
        return _stream_of(data.collect(), schema)
    if library == "polars" and kind == "DataFrame":
        return _stream_of(data.to_arrow(), None)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return _stream_of_columns({name: data[name] for name in data.dtype.names}, schema)
    reason = None
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return _stream_of(pa.RecordBatchReader.from_stream(data), None)
        if hasattr(data, "__arrow_c_array__"):
            return _stream_of(pa.record_batch(data), None)
    except pa.ArrowInvalid as error:  # it has values, and no columns
        reason = error
    is_column = library in ("numpy", "pandas", "polars", "pyarrow")
    if isinstance(data, Iterable) and not (is_column or isinstance(data, str | bytes)):
        return _stream_of_iterable(data, schema)
    hint = _COLUMN_HINT if is_column else _hint(data)
    raise RowsTypeError(
        f"rows cannot be read from an object of this type{hint}", type=str(type(data))
    ) from reason


def _hint(data: Any) -> str:
    if isinstance(data, str | PurePath):
        return "; open a file first, as by pyarrow.dataset.dataset(path)"
    return "; pass a list of them" if _is_record(data) or _is_model(data) else ""


# --- columns of values ---------------------------------------------------------------------------


def _stream_of_columns(columns: Mapping[str, Any], schema: pa.Schema | None) -> RowStream:
    table = _table_of_columns(columns, schema)

    def typed(types: Types) -> RowStream:
        return _stream_of(_retyped(table, columns, types), None)

    return dataclasses.replace(_stream_of(table, None), typed=None if schema else typed)


def _table_of_columns(columns: Mapping[str, Any], schema: pa.Schema | None) -> pa.Table:
    wanted = {} if schema is None else {field.name: field.type for field in schema}
    arrays = {name: _column(name, values, wanted.get(name)) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError("the columns have different numbers of values", lengths=lengths)
    with _naming_the_value(lambda: arrays, wanted):
        return pa.Table.from_pydict(arrays, schema=schema)


@contextlib.contextmanager
def _naming_the_value(columns: Callable[[], Mapping[str, Any]], wanted: Types) -> Iterator[None]:
    """Name the column, the row and the value where Arrow cannot make arrays of columns."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        for name, values in columns().items():
            row = _first_refused(values, wanted.get(name))
            if row is not None:
                raise MixedValuesError(
                    f"a value cannot be stored in a column beside the others: {error.args[0]}",
                    column=name,
                    row=row,
                    value=shown(values[row]),
                    **({"expected": str(wanted[name])} if name in wanted else {}),
                ) from error
        raise


def _first_refused(values: Any, wanted: pa.DataType | None) -> int | None:
    """Return the place of the first value that does not go with those before it, or None."""

    def is_refused(count: int) -> bool:
        try:
            pa.array(values[:count], wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            return True
        return False

    if isinstance(values, pa.Array | pa.ChunkedArray) or not is_refused(len(values)):
        return None
    return bisect.bisect_left(range(len(values)), True, key=lambda row: is_refused(row + 1))


def shown(value: object) -> object:
    """Return a value as a message shows it: cut if it is long."""
    text = repr(value)
    return value if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _column(name: str, values: Any, wanted: pa.DataType | None) -> Any:
    """Return a column with what Arrow does not take made an array, and the rest as it is."""
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
    if not _is_blob(wanted):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_as_blobs(chunk, wanted) for chunk in values.chunks], wanted)
    if isinstance(values, pa.Array):
        return _as_blobs(values, wanted)
    return pa.ExtensionArray.from_storage(wanted, _blob_storage(values, wanted))


def _is_blob(wanted: pa.DataType | None) -> bool:
    return isinstance(wanted, pa.BaseExtensionType) and (
        wanted.extension_name == BlobType().extension_name
    )


def _as_blobs(array: pa.Array, wanted: pa.BaseExtensionType) -> pa.Array:
    """Return byte strings as blobs that have them, and texts as blobs at these URIs."""
    if is_bytes(array.type):
        given = {"data": array.cast(pa.large_binary())}
    elif is_text(array.type):
        given = {"uri": array.cast(pa.string())}
    else:
        return array
    parts = [given.get(part.name, pa.nulls(len(array), part.type)) for part in wanted.storage_type]
    mask = array.is_null() if array.null_count else None
    storage = pa.StructArray.from_arrays(parts, fields=list(wanted.storage_type), mask=mask)
    return pa.ExtensionArray.from_storage(wanted, storage)


def _blob_storage(values: Any, wanted: pa.BaseExtensionType) -> pa.Array:
    blobs = blob_array(list(values)).storage
    parts = [blobs.field(part.name) for part in wanted.storage_type]
    mask = blobs.is_null() if blobs.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(wanted.storage_type), mask=mask)


def _retyped(table: pa.Table, columns: Mapping[str, Any], types: Types) -> pa.Table:
    """Return a table of values of Python with other types for numbers with a fraction.

    Such numbers have no width of their own: 0.1 is the nearest number of whatever column it is
    in. Values that do not fit keep the type that they have.
    """
    for name, wanted in types.items():
        place = table.schema.get_field_index(name)
        values = columns[name]
        is_typed = isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray)
        if is_typed or not (_holds_floats(wanted) and _holds_floats(table.field(place).type)):
            continue
        try:
            array = pa.array(values, wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            continue  # told with its row where rows are converted
        table = table.set_column(place, table.field(place).with_type(wanted), array)
    return table


def _holds_floats(data_type: pa.DataType) -> bool:
    """Whether values are numbers with a fraction, or lists of such."""
    while not isinstance(data_type, pa.BaseExtensionType) and data_type.num_fields == 1:
        data_type = data_type.field(0).type
    return bool(pa.types.is_floating(data_type))


def _stream_of_pandas(frame: Any, schema: pa.Schema | None) -> RowStream:
    index: Any = getattr(frame, "index", None)
    # Arrow keeps a range as its ends, which say nothing of rows that a filter leaves.
    is_named_range = type(index).__name__ == "RangeIndex" and index.name is not None
    keeps = True if is_named_range and schema is None else None
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()]
        raise InvalidInputError("several columns of the frame have one name", columns=list(twice))

    def columns() -> dict[str, Any]:
        return {name: frame[name].to_numpy() for name in frame}

    wanted = {} if schema is None else {field.name: field.type for field in schema}
    with _naming_the_value(columns, wanted):
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=keeps)

    def typed(types: Types) -> RowStream:
        # Columns of objects hold values of Python; the others have a type of their own.
        own = {name: kind for name, kind in types.items() if _holds_objects(frame, name)}
        values = {name: list(frame[name].array) for name in own}
        return _stream_of(_retyped(table, values, own), None)

    return dataclasses.replace(_stream_of(table, None), typed=typed if schema is None else None)


def _holds_objects(frame: Any, name: str) -> bool:
    return name in frame.columns and bool(getattr(frame.dtypes[name], "hasobject", False))


# --- data sets of Hugging Face -------------------------------------------------------------------


def _stream_of_hugging_face(data: Any, library: Any) -> RowStream:
    """Return the rows of a data set as Arrow has them: images and audio as bytes and paths."""
    if isinstance(data, library.DatasetDict | library.IterableDatasetDict):
        raise InvalidInputError(
            "DatasetDict is not yet supported as rows: its splits are data sets of their own. "
            "Write each to a table, or join them by `lancelet.hf.with_split_column`",
            splits=list(data),
        )
    if not isinstance(data, library.Dataset | library.IterableDataset):
        raise RowsTypeError("rows cannot be read from an object of this type", type=str(type(data)))
    tables = iter(data.with_format("arrow").iter(batch_size=_HUGGING_FACE_ROWS))
    if data.features is None:
        first = next(tables, None)
        if first is None:
            raise InvalidInputError("a stream without rows must have features")
        schema, tables = first.schema, itertools.chain([first], tables)
    else:
        schema = data.features.arrow_schema
    if isinstance(data, library.Dataset) and data._indices is None:  # noqa: SLF001 - as stored
        whole = data.data.table
        if whole.schema.equals(schema):
            return RowStream(schema, iter(whole.to_batches()))

    def batches() -> Iterator[pa.RecordBatch]:
        for table in tables:
            yield from library.table.table_cast(table.select(schema.names), schema).to_batches()

    return RowStream(schema, batches())


# --- rows one by one -----------------------------------------------------------------------------


def _stream_of_iterable(data: Iterable[Any], schema: pa.Schema | None) -> RowStream:
    rest = iter(data)
    first = next(rest, None)
    if _is_model(first):
        from lancelet.pydantic import models_to_table  # noqa: PLC0415 - an extra

        model: Any = type(first)
        return _stream_of(models_to_table(data, model, schema), None)
    if isinstance(first, Mapping) or _is_record(first):
        if isinstance(data, Sequence):
            return _stream_of_columns(_columns_of(data, schema), schema)
        return _stream_of_rows(itertools.chain([first], rest), schema)
    if first is None:
        if schema is None:
            raise InvalidInputError("an iterable without batches needs a schema")
        return RowStream(schema, iter(()))
    if not isinstance(first, pa.RecordBatch | pa.Table):
        raise InvalidInputError(
            "an iterable of rows must yield batches, tables, dicts, dataclasses or models",
            found=str(type(first)),
        )
    return RowStream(first.schema, _batches(itertools.chain([first], rest)))


def _stream_of_rows(rows: Iterator[Any], schema: pa.Schema | None) -> RowStream:
    """Return rows that come one by one, of which only some are in memory at a time."""
    first = _columns_of(list(itertools.islice(rows, _CHUNK_ROWS)), schema)
    guessed = _table_of_columns(first, schema)
    own = guessed.schema

    def stream(begin: pa.Table) -> RowStream:
        return RowStream(begin.schema, _row_batches(begin, rows, strict=schema is None))

    def typed(types: Types) -> RowStream:
        return stream(_retyped(guessed, first, types))

    return dataclasses.replace(stream(guessed), typed=typed if schema is None else None, schema=own)


def _row_batches(first: pa.Table, rows: Iterator[Any], *, strict: bool) -> Iterator[pa.RecordBatch]:
    yield from first.to_batches()
    begin = first.num_rows
    while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
        columns = _columns_of(chunk)
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
                array = pa.array(_column(field.name, values, field.type), field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise SchemaMismatchError(
                    "a row has a value of another type than the rows before it; give a schema "
                    f"beside the rows: {error}",
                    column=field.name,
                    expected=str(field.type),
                    rows=f"{begin} to {begin + len(chunk) - 1}",
                ) from error
            arrays.append(array)
        yield pa.RecordBatch.from_arrays(arrays, schema=first.schema)
        begin += len(chunk)


def _columns_of(rows: Sequence[Any], schema: pa.Schema | None = None) -> dict[str, list[Any]]:
    """Return the values of rows by name, of all that a schema has; what a row lacks is null."""
    columns = _values_of(rows)
    for name in () if schema is None else schema.names:
        columns.setdefault(name, [None] * len(rows))
    return columns


def _values_of(rows: Sequence[Any]) -> dict[str, list[Any]]:
    if _is_record(rows[0]):
        fields = [field.name for field in dataclasses.fields(rows[0])]
        return {name: _plain_column([getattr(row, name) for row in rows]) for name in fields}
    names = list(rows[0])
    if set(map(len, rows)) == {len(names)}:
        with contextlib.suppress(KeyError):  # a row has other names, if as many
            return {name: [row[name] for row in rows] for name in names}
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    return {name: [row.get(name) for row in rows] for name in names}


def _is_record(row: Any) -> bool:
    return dataclasses.is_dataclass(row) and not isinstance(row, type)


def _plain_column(values: list[Any]) -> list[Any]:
    """Return values with dataclasses, and those in lists, as dicts."""
    known = next((value for value in values if value is not None and value != []), None)
    is_plain = not (_is_record(known) or (isinstance(known, list) and _is_record(known[0])))
    return values if is_plain else [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not _is_record(value):
        return value
    fields = dataclasses.fields(value)
    return {field.name: _plain(getattr(value, field.name)) for field in fields}


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
        array = _as_blobs(array, field.type)
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

"""Rows to be written, in whatever form a caller has them, as one stream of batches.

table, batch, dict of columns, list of dicts       what is there
list of Pydantic models                            the schema is that of their class
reader, scanner, dataset, iterable of batches      read as it is written
pandas, Polars, anything that offers an Arrow stream

Texts of Polars are `large_string`, as they are for the reference: a table that holds them keeps
that type, and only rows with it can be appended.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.format.schema import Schema


class RowsTypeError(InvalidInputError, TypeError):
    """An object has no rows."""


@dataclass(frozen=True, slots=True, eq=False)
class RowStream:
    """Batches and the schema they all have; can be read once.

    `is_in_memory` says that they take memory anyway, whether or not they are kept.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    is_in_memory: bool = False


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
        case Mapping():
            return _stream_of(pa.Table.from_pydict(dict(data), schema=schema), None)
    # The module imports pandas, which workers of Spark would wait for; without it nothing is one.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(data, datasets.Dataset):
        return _stream_of(data.scanner().to_reader(), None)
    if datasets is not None and isinstance(data, datasets.Scanner):
        return _stream_of(data.to_reader(), None)
    if type(data).__module__.split(".")[0] == "pandas":
        return _stream_of(pa.Table.from_pandas(data, schema=schema), None)
    if type(data).__module__.startswith("polars") and hasattr(data, "to_arrow"):
        return _stream_of(data.to_arrow(), None)
    if hasattr(data, "__arrow_c_stream__"):
        return _stream_of(pa.RecordBatchReader.from_stream(data), None)
    if isinstance(data, Iterable):
        return _stream_of_iterable(data, schema)
    raise RowsTypeError("rows cannot be read from an object of this type", type=str(type(data)))


def _stream_of_iterable(data: Iterable[Any], schema: pa.Schema | None) -> RowStream:
    rest = iter(data)
    first = next(rest, None)
    if isinstance(first, Mapping):
        rows = [dict(row) for row in itertools.chain([first], rest)]
        return _stream_of(pa.Table.from_pylist(rows, schema=schema), None)
    if _is_model(first):
        from lancelet.pydantic import models_to_table  # noqa: PLC0415 - an extra

        model: Any = type(first)
        return _stream_of(models_to_table(data, model, schema), None)
    if first is None:
        if schema is None:
            raise InvalidInputError("an iterable without batches needs a schema beside it")
        return RowStream(schema, iter(()))
    if not isinstance(first, pa.RecordBatch | pa.Table):
        raise InvalidInputError(
            "an iterable of rows must yield batches, tables or dicts", found=str(type(first))
        )
    return RowStream(first.schema, _batches(itertools.chain([first], rest)))


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
                "the batches do not have the columns of the schema beside them",
                expected=schema.names,
                found=batch.schema.names,
            )
        columns = [_cast(batch.column(field.name), field) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
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

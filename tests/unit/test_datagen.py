"""Random rows: as many as asked for, of the types asked for."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet._datagen import is_datagen_supported, rand_batches
from lancelet.errors import InvalidInputError, UnsupportedError

LEAVES = st.sampled_from(
    [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string()),
        *(pa.large_binary(), pa.timestamp("us", "UTC"), pa.date32(), pa.duration("ms")),
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(pa.large_list)
        | inner.map(lambda each: pa.list_(each, 3))
        | st.lists(inner, min_size=1, max_size=2).map(
            lambda parts: pa.struct([(str(n), part) for n, part in enumerate(parts)])
        )
    ),
    max_leaves=3,
)


@given(st.lists(TYPES, min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 20))
def test_batches_have_the_rows_and_types_requested(types, batches, rows):
    schema = pa.schema([pa.field(str(number), kind) for number, kind in enumerate(types)])
    found = rand_batches(schema, num_batches=batches, rows_per_batch=rows)
    assert [batch.num_rows for batch in found] == [rows] * batches
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == schema
        assert all(column.null_count == 0 for column in batch.columns)


def test_sizes_are_rounded_up_to_rows():
    schema = pa.schema([("a", pa.int64()), ("v", pa.list_(pa.float32(), 128))])
    (batch,) = rand_batches(schema, batch_size_bytes=1041)
    assert batch.num_rows == 3
    assert is_datagen_supported()


def test_input_that_cannot_be_made_is_rejected():
    schema = pa.schema([("a", pa.decimal128(10, 2))])
    with pytest.raises(InvalidInputError, match="mutually exclusive"):
        rand_batches(schema, batch_size_bytes=1, rows_per_batch=1)
    with pytest.raises(UnsupportedError, match="decimal"):
        rand_batches(schema)

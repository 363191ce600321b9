"""Tables of a thousand columns, whose pages are put together by their types, both ways.

Every type has columns that are packed, plain, in runs, of one value, of few values, of many texts
and of nulls, so that pages of each kind lie side by side.
"""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop

COLUMNS = 1000
TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32()),
    *(pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.decimal128(12, 2)),
    *(pa.string(), pa.binary(), pa.large_string()),
)


def values(rng, kind, rows):
    """Whole numbers that fit every type, in one of several patterns."""
    match kind:
        case 0:
            return rng.integers(0, 128, rows)
        case 1:
            return np.arange(rows) % 120
        case 2:
            return np.sort(rng.integers(0, 5, rows))
        case 3:
            return np.full(rows, 7)
        case _:
            return rng.choice(rng.integers(0, 128, 9), rows)


def column(rng, at, rows):
    data_type = TYPES[at % len(TYPES)]
    numbers = pa.array(values(rng, at // len(TYPES) % 5, rows))
    if pa.types.is_boolean(data_type):
        array = pa.array(numbers.to_numpy() % 2 == 0)
    elif pa.types.is_binary(data_type) or pa.types.is_decimal(data_type):
        array = numbers.cast(pa.string()).cast(data_type)
    elif pa.types.is_date32(data_type):
        array = numbers.cast(pa.int32()).cast(data_type)
    else:
        array = numbers.cast(data_type)
    if at % 3 == 0:
        share = [0.001, 0.2, 0.9, 1.0][at // 3 % 4]
        valid = rng.random(rows) >= share
        chosen = pa.array(np.where(valid, np.arange(rows), 0), mask=~valid)
        array = array.take(chosen)
    return array


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("rows", [2, 150, 1000])
def test_each_reads_the_wide_tables_of_the_other(version, rows, tmp_path):
    rng = np.random.default_rng(rows)
    table = pa.table({f"c{at}": column(rng, at, rows) for at in range(COLUMNS)})
    lancelet.write_dataset(table, tmp_path / "ours", data_storage_version=version)
    lance.write_dataset(table, tmp_path / "theirs", data_storage_version=version)
    assert lance.dataset(tmp_path / "ours").to_table().equals(table)
    assert lancelet.dataset(tmp_path / "theirs").to_table().equals(table)
    ours = lancelet.dataset(tmp_path / "ours")
    assert ours.to_table().equals(table)
    wanted, some = [rows - 1, 0], [f"c{at}" for at in range(0, COLUMNS, 7)]
    expected = table.take(wanted).select(some)
    assert ours.take(wanted, columns=some).equals(expected)
    assert lance.dataset(tmp_path / "ours").take(wanted, columns=some).equals(expected)

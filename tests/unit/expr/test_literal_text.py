"""Constants are those that Arrow makes of the same values."""

from decimal import Decimal

import pyarrow as pa
import pytest

from lancelet.expr.literal_text import scalar_of, to_narrowest_array

CONSTANTS = [
    *((7, each) for each in (None, pa.int8(), pa.uint16(), pa.int64(), pa.uint64())),
    *((-7, each) for each in (None, pa.int8(), pa.int64())),
    *((edge, pa.int64()) for edge in (-(2**63), 2**63 - 1)),
    (2**64 - 1, pa.uint64()),
    *((1.5, each) for each in (None, pa.float32(), pa.float64())),
    *((edge, None) for edge in (float("nan"), float("inf"), -0.0)),
    *(("größer 🙂", each) for each in (None, pa.string(), pa.large_string())),
    *((Decimal("-1.50"), each) for each in (pa.decimal128(3, 2), pa.decimal256(50, 7))),
    *((Decimal("12E+3"), each) for each in (pa.decimal128(9, 2), pa.decimal128(5, 0))),
    *((value, None) for value in (None, True, b"x", "", 0)),
]


@pytest.mark.parametrize(("value", "data_type"), CONSTANTS)
def test_constants_are_those_of_arrow(value, data_type):
    found, expected = scalar_of(value, data_type), pa.scalar(value, data_type)
    assert found.type == expected.type
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        *((300, each) for each in (pa.int8(), pa.uint8(), pa.string())),
        *((-1, each) for each in (pa.uint8(), pa.uint64())),
        (2**63, None),
        *((Decimal("1.55"), pa.decimal128(*each)) for each in ((3, 1), (2, 2))),
        *((Decimal(each), pa.decimal128(5, 2)) for each in ("NaN", "1000")),
        ("\ud800", None),
        ("x", pa.int64()),
    ],
)
def test_values_rejected_by_arrow_are_rejected(value, data_type):
    with pytest.raises((pa.ArrowException, OverflowError, ValueError)) as expected:
        pa.scalar(value, data_type)
    with pytest.raises(type(expected.value)):
        scalar_of(value, data_type)


@pytest.mark.parametrize("values", [[], [1, -(2**63)], [1, None], [1, Decimal("2.5")], [2**63]])
def test_numbers_of_a_list_are_exact(values):
    assert to_narrowest_array(values).to_pylist() == values

"""bfloat16 rounds as ml_dtypes does and survives Arrow."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.arrow import BFloat16, BFloat16Type, bfloat16_array, cast
from lancelet.errors import InvalidInputError


@given(st.floats(width=32))
def test_rounding_is_to_nearest_even(value):
    """The definition: no other bfloat16 is nearer, and of two equally near the even one wins."""
    rounded = BFloat16(value)
    if np.isnan(value):
        assert np.isnan(rounded.as_float())
        return
    bits = int.from_bytes(rounded.to_bytes(), "little")
    neighbours = [
        BFloat16.from_bytes(other.to_bytes(2, "little")).as_float()
        for other in (bits - 1, bits + 1)
        if 0 <= other < 1 << 16
    ]
    distance = abs(rounded.as_float() - value) if np.isfinite(rounded.as_float()) else 0
    for neighbour in neighbours:
        if np.isfinite(neighbour) and np.isfinite(rounded.as_float()):
            assert distance < abs(neighbour - value) or (
                distance == abs(neighbour - value) and bits % 2 == 0
            )


def test_numbers_compare_and_print_by_value():
    assert BFloat16(1.124565) == BFloat16(1.124565)
    assert str(BFloat16(1.124565)) == "1.125"
    assert BFloat16(1.0) < BFloat16(1.1) <= BFloat16(1.1)
    assert pickle.loads(pickle.dumps(BFloat16(2.5))) == BFloat16(2.5)


def test_array_prints_its_values_and_nulls():
    array = bfloat16_array([1.1, None, 3.4])
    assert str(array) == "[\n  1.1015625,\n  None,\n  3.40625\n]"
    assert array[0].as_py() == BFloat16(1.1)
    assert array[1].as_py() is None


@pytest.mark.parametrize("float_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_casts_go_both_ways_with_nulls_and_slices(float_type):
    floats = pa.array(np.array([9.0, 1.0, 2.0, 3.0]), pa.float64()).cast(float_type)
    floats = pa.concat_arrays([floats, pa.nulls(1, float_type)]).slice(1)
    casted = cast(floats, "bfloat16")
    assert casted.to_pylist() == [BFloat16(1), BFloat16(2), BFloat16(3), None]
    assert cast(casted, float_type) == floats
    assert cast(casted.slice(1), float_type) == floats.slice(1)


def test_vectors_cast_both_ways():
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0], pa.float32()), 2)
    casted = cast(vectors, pa.list_(BFloat16Type(), 2))
    assert cast(casted, vectors.type) == vectors
    with pytest.raises(InvalidInputError, match="same length"):
        cast(vectors, pa.list_(BFloat16Type(), 4))


def test_integers_do_not_cast():
    with pytest.raises(InvalidInputError, match="floating"):
        cast(pa.array([1, 2]), "bfloat16")

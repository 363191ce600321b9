"""Looking up dictionaries, by definition and natively."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError

WIDTHS = st.sampled_from([1, 2, 3, 4, 8, 16, 32])
INDICES = st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64])


@given(width=WIDTHS, dtype=INDICES, count=st.integers(0, 300), known=st.integers(1, 200))
def test_every_value_is_the_item_at_its_index(agree, width, dtype, count, known) -> None:
    rng = np.random.default_rng(count)
    items = rng.integers(0, 256, (known, width), np.uint8)
    indices = rng.integers(0, known, count).astype(dtype)
    found = agree("look_up_fixed", items.reshape(-1), width, indices)
    assert found.reshape(count, width).tolist() == items[indices.astype(int)].tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("known", [0, 3])
def test_an_index_behind_the_last_item_is_refused(agree, dtype, known) -> None:
    indices = np.array([0, known, np.iinfo(dtype).max], dtype)
    items = np.zeros(known * 4, np.uint8)
    assert agree("look_up_fixed", items, 4, indices) is CorruptDataError


def test_unaligned_bytes_are_looked_up(agree) -> None:
    source = np.arange(33, dtype=np.uint8)
    assert agree("look_up_fixed", source[1:], 8, np.array([3], np.uint8)).tolist() == list(
        range(25, 33)
    )

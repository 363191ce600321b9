"""Recycled memory: arrays in use never overlap, and free memory is bounded."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.kernels import RecycledMemory, recycling
from lancelet.kernels.recycled import recycled_memory


@given(st.lists(st.tuples(st.integers(1, 300_000), st.booleans()), max_size=40))
def test_arrays_in_use_do_not_overlap(requests):
    memory, used = RecycledMemory(1 << 20), []
    for number, (size, is_released) in enumerate(requests):
        array = memory.empty(size)
        assert len(array) == size
        array[:] = number % 251
        used.append((number % 251, array))
        if is_released:
            used.pop(len(used) // 2)
        for value, each in used:
            assert (each == value).all()


def test_views_keep_their_memory():
    memory = RecycledMemory(1 << 20)
    array = memory.empty(100_000)
    array[:] = 7
    view = array[10:20].reshape(2, 5)
    del array
    memory.empty(100_000)[:] = 1
    assert (view == 7).all()


def test_free_memory_is_bounded():
    memory = RecycledMemory(1 << 20)
    arrays = [memory.empty(1 << 19) for _ in range(6)]
    addresses = {array.ctypes.data for array in arrays}
    arrays.clear()
    again = [memory.empty(1 << 19) for _ in range(6)]
    assert len({array.ctypes.data for array in again} & addresses) >= 2
    assert sum(map(len, memory._free.values())) == 0


def test_only_the_thread_recycles():
    assert recycled_memory() is None
    memory = RecycledMemory(1 << 20)
    with recycling(memory):
        assert recycled_memory() is memory
        with recycling(RecycledMemory(0)):
            assert recycled_memory() is not memory
        assert recycled_memory() is memory
    assert recycled_memory() is None


def test_kernels_return_the_same_values_from_recycled_memory():
    source = np.arange(1 << 20, dtype=np.uint8)
    position = np.arange(0, 1 << 20, 64)[::-1].copy()
    expected = kernels.take_fixed(source, position, 64)
    with recycling(RecycledMemory(1 << 22)):
        for _ in range(3):
            assert np.array_equal(kernels.take_fixed(source, position, 64), expected)


def test_free_memory_is_not_pickled():
    memory = RecycledMemory(1 << 24)
    memory.empty(1 << 20)
    assert len(pickle.dumps(memory)) < 200

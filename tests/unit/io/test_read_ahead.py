"""Reading ahead requests each range once, and nothing outside of the file."""

import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.buffers import ByteRanges, ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.kernels import reference

BACKENDS = [reference.read_ahead, kernels.read_ahead]
SOURCE = np.zeros(100_000, np.uint8)


def nothing_known(source: np.ndarray) -> np.ndarray:
    return np.zeros(-(-len(source) // 4096), np.uint8)


@pytest.mark.parametrize("read_ahead", BACKENDS)
@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 10_000)), max_size=100))
def test_slices_in_memory_are_not_requested(read_ahead, pairs):
    ranges = ByteRanges.of(*pairs)
    assert read_ahead(ByteSlices(SOURCE, ranges.position, ranges.size), nothing_known(SOURCE)) == 0


@pytest.mark.parametrize("read_ahead", BACKENDS)
@pytest.mark.parametrize(
    "outside", [(0, 100_001), (100_001, 0), (-1, 1), (5, -1), (2**63 - 1, 2**63 - 1)]
)
def test_slices_outside_are_rejected(read_ahead, outside):
    ranges = ByteRanges.of((0, 5), outside)
    with pytest.raises(CorruptDataError) as caught:
        read_ahead(ByteSlices(SOURCE, ranges.position, ranges.size), nothing_known(SOURCE))
    assert caught.value.facts["index"] == 1


def test_cold_slices_are_requested_in_steps(tmp_path: Path):
    """A file with holes is never in memory until it is touched, on any file system."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        source = np.frombuffer(mapped, np.uint8)
        ranges = ByteRanges.of((5, 10), (20 << 20, 1 << 20), (40 << 20, 0))
        slices = ByteSlices(source, ranges.position, ranges.size)
        known = nothing_known(source)
        # One for the small slice, eight of 128 KiB for the other; none without the kernel.
        assert kernels.read_ahead(slices, known) == (9 if kernels.NATIVE else 0)
        # Each block of four pages is requested once.
        assert int(known.sum()) == (4 + 256 if kernels.NATIVE else 0)
        assert kernels.read_ahead(slices, known) == 0
        touched = [int(slices.slice_bytes(index).sum()) for index in range(3)]
        assert touched == [0, 0, 0]
        del source, slices

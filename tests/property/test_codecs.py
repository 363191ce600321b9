"""Every codec obeys the laws of the codec suite, over generated blocks.

The reference kernels and the native ones are compared elsewhere; these laws hold for whichever
this machine has.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkLimits
from lancelet.encodings.codecs.chunking import chunk_counts
from tests.kit.codec_suite import (
    CODEC_CASES,
    Damage,
    check_blocks,
    check_chunks,
    check_damaged_blocks,
    check_damaged_chunks,
    check_damaged_values,
    check_takes,
    check_values,
)

LIMITS = st.sampled_from(
    [ChunkLimits(), ChunkLimits(values_max=1024, bytes_aim=256), ChunkLimits(bytes_aim=100_000)]
)
IN_CHUNKS = [case for case in CODEC_CASES if case.chunks is not None]
IN_BLOCKS = [case for case in CODEC_CASES if case.blocks is not None]
ONE_BY_ONE = [case for case in CODEC_CASES if case.values is not None]
SEEDS = st.integers(0, 1 << 32)
DAMAGE = st.builds(
    Damage,
    SEEDS,
    st.frozensets(st.sampled_from(["bytes", "sizes", "counts", "message"]), min_size=1),
)


def test_every_codec_has_a_case() -> None:
    tested = {case.codec.wire_name for case in CODEC_CASES}
    assert {codec.wire_name for codec in registry.CODECS} == tested | {"dictionary"}


@pytest.mark.parametrize("case", IN_CHUNKS, ids=str)
@given(data=st.data())
def test_decoding_undoes_encoding_in_chunks(case, data) -> None:
    check_chunks(case, data.draw(case.chunks), data.draw(LIMITS))


@pytest.mark.parametrize("case", IN_CHUNKS, ids=str)
@given(data=st.data())
def test_picked_values_are_those_of_a_full_decode(case, data) -> None:
    block = data.draw(case.chunks.filter(lambda block: block.count > 0))
    rows = data.draw(st.lists(st.integers(0, block.count - 1), min_size=1, max_size=20))
    check_takes(case, block, np.array(rows, np.int64), data.draw(LIMITS))


@pytest.mark.parametrize("case", IN_BLOCKS, ids=str)
@given(data=st.data())
def test_decoding_undoes_encoding_in_blocks(case, data) -> None:
    block = data.draw(case.blocks)
    counts = np.array([block.count], np.int64)
    if case.has_many_blocks:
        counts = chunk_counts(block.count, data.draw(st.sampled_from([8, 1000, 1024, 4096])))
    check_blocks(case, block, counts)


@pytest.mark.parametrize("case", ONE_BY_ONE, ids=str)
@given(data=st.data())
def test_decoding_undoes_encoding_one_by_one(case, data) -> None:
    check_values(case, data.draw(case.values))


@pytest.mark.parametrize("case", IN_CHUNKS, ids=str)
@given(data=st.data(), damage=DAMAGE)
def test_damaged_chunks_are_rejected_or_sound(case, data, damage) -> None:
    check_damaged_chunks(case, data.draw(case.chunks), damage)


@pytest.mark.parametrize("case", IN_BLOCKS, ids=str)
@given(data=st.data(), damage=DAMAGE)
def test_damaged_blocks_are_rejected_or_sound(case, data, damage) -> None:
    check_damaged_blocks(case, data.draw(case.blocks), damage)


@pytest.mark.parametrize("case", ONE_BY_ONE, ids=str)
@given(data=st.data(), damage=DAMAGE)
def test_damaged_values_are_rejected_or_sound(case, data, damage) -> None:
    check_damaged_values(case, data.draw(case.values), damage)

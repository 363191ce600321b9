"""Trials that cannot matter are skipped, and skipping them changes no choice.

The laws: a compression that is skipped would not have saved what it must, or would cost more to
read; whether a page gets a dictionary follows from how many items its sample lets one expect.
"""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import FileVersion, FixedWidth, Variable
from lancelet.encodings.choice.choose import encode_mini_block, estimate_items
from lancelet.encodings.choice.cost import least_cost_of_compressed, saving_min
from lancelet.encodings.choice.options import EncodingOptions
from lancelet.encodings.choice.trials import GENERAL, best_trial, planes_entropy, try_all
from lancelet.encodings.codecs.base import ChunkLimits
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.general import General
from lancelet.encodings.pages.leaf import raw_bytes

RNG = np.random.default_rng(11)
COUNT = 4096
NUMBERS = {
    "random": RNG.integers(-(2**62), 2**62, COUNT),
    "21 bits": RNG.integers(0, 1 << 21, COUNT),
    "rising": 10**15 + np.cumsum(RNG.integers(0, 10**6, COUNT)),
    "row numbers": np.arange(COUNT),
    "two decimals": np.round(RNG.integers(0, 10**6, COUNT) / 100, 2),
    "normal": RNG.normal(size=COUNT).astype(np.float32),
    "sparse": RNG.integers(0, 2**40, COUNT) * (RNG.random(COUNT) < 0.02),
}
LIMITS = ChunkLimits()


def words(values: np.ndarray) -> FixedWidth:
    return FixedWidth(values.itemsize * 8, values.view(np.uint8), len(values))


def tried(values: np.ndarray) -> list[str]:
    sample = words(values)
    options = EncodingOptions()
    trials = try_all(sample, page_bytes=raw_bytes(sample), options=options, limits=LIMITS)
    return [trial.description for trial in trials]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("compression", GENERAL)
@pytest.mark.parametrize("inner", [Flat(), ByteStreamSplit()])
def test_skipped_encodings_would_not_have_been_chosen(name, compression, inner) -> None:
    sample = words(NUMBERS[name])
    options = EncodingOptions()
    trials = try_all(sample, page_bytes=raw_bytes(sample), options=options, limits=LIMITS)
    codec = General(inner, compression)
    was_tried = any(
        isinstance(trial.codec, General)
        and trial.codec.compression is compression
        and type(trial.codec.inner) is type(inner)
        for trial in trials
    )
    if not was_tried:
        encoded = codec.encode_chunks(sample, ChunkLimits(bytes_aim=16_000))
        stored = encoded.encoded_bytes / COUNT
        plain = [t.cost.bytes_per_value for t in trials if not isinstance(t.codec, General)]
        is_small = stored <= (1 - saving_min(codec)) * min(plain)
        cost = least_cost_of_compressed(codec, stored, sample)
        assert not is_small or cost.total >= best_trial(trials, options).cost.total


def test_bytes_that_packing_has_used_up_are_not_compressed() -> None:
    assert tried(NUMBERS["21 bits"]) == [
        "flat(64)",
        "inline_bitpacking(64)",
    ]
    assert "general(zstd){flat(64)}" in tried(NUMBERS["two decimals"])


@given(st.integers(1, 4), st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_entropy_is_that_of_each_byte_or_of_its_differences(width: int, drawn: list[int]) -> None:
    values = np.array(drawn, np.uint8)
    expected = width * min(
        shannon_bytes(values), shannon_bytes(np.diff(values, prepend=values[:1]))
    )
    found = planes_entropy(FixedWidth(8 * width, np.repeat(values, width), len(drawn)))
    assert found == pytest.approx(expected, abs=1e-9)


def shannon_bytes(values: np.ndarray) -> float:
    _, counts = np.unique(values, return_counts=True)
    share = counts / len(values)
    return float(-(share * np.log2(share)).sum()) / 8


@given(st.integers(1, 100_000), st.integers(2, 16384))
def test_expected_items_would_show_as_many_distinct(items: int, drawn: int) -> None:
    shown = items * -math.expm1(-drawn / items)
    distinct = round(shown)
    found = estimate_items(distinct, drawn)
    if distinct >= drawn:
        assert found == math.inf
    elif distinct:
        assert found * -math.expm1(-drawn / found) == pytest.approx(distinct, rel=0.02, abs=1)


@pytest.mark.parametrize(
    ("known", "has_dictionary"),
    [
        (RNG.integers(0, 1 << 60, 500), True),
        (RNG.permutation(512), False),
        (RNG.integers(0, 1 << 60, 90_000), False),
    ],
)
def test_a_dictionary_is_built_if_its_indices_are_narrower(
    known: np.ndarray, has_dictionary: bool
) -> None:
    values = words(RNG.choice(known, 100_000))
    page = encode_mini_block(values, version=FileVersion.V2_2, options=EncodingOptions())
    names = [page.description, *page.refused]
    assert any(name.startswith("dictionary") for name in names) == has_dictionary


def test_strings_use_one_symbol_table_for_all_trials(monkeypatch) -> None:
    block = block_from_arrow(
        pa.array([f"https://www.example.com/{n * 37 % 1009}" for n in range(3000)])
    )
    assert isinstance(block, Variable)
    calls: list[str] = []
    for name in ("fsst_train", "fsst_encode"):
        kernel = getattr(kernels, name)

        def counted(*arguments, _kernel=kernel, _name=name):
            calls.append(_name)
            return _kernel(*arguments)

        monkeypatch.setattr(kernels, name, counted)
    options = EncodingOptions()
    trials = try_all(block, page_bytes=raw_bytes(block), options=options, limits=LIMITS)
    assert sum("fsst" in trial.description for trial in trials) == 3
    assert calls == ["fsst_train", "fsst_encode"]
    assert "fsst{variable(flat(32))}}" in best_trial(trials, options).description

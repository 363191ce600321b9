"""The native search of partitions finds what its definition finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import LanceletError
from lancelet.index.kernels import (
    CodeKind,
    CodeQuery,
    Metric,
    PackedCodes,
    Probes,
    RowMasks,
    native,
    reference,
)
from lancelet.rowids.address import NO_ADDRESS

KINDS = [*CodeKind]


def case(
    seed: int, kind: CodeKind, *, small_words: bool = False
) -> tuple[CodeQuery, PackedCodes, Probes, Any, Any]:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 90, int(random.integers(1, 6)))
    lengths[0] += 1200  # more than the kernel looks at in one go
    starts = np.cumsum(lengths) - lengths
    rows, dimension = int(lengths.sum()), int(random.choice([4, 8, 20, 64, 100, 132]))
    query = random.normal(size=dimension).astype(np.float32)
    add, scale = random.normal(size=(2, rows)).astype(np.float32)
    centers = random.normal(size=(len(lengths), dimension)).astype(np.float32)
    bases = random.random(len(lengths)).astype(np.float32)
    factors: tuple[Any, ...] = ()
    extra: dict[str, Any] = {}
    per_row = dimension
    match kind:
        case CodeKind.CODEBOOK:
            pieces = dimension // 2
            per_row = pieces // 2 if small_words else pieces
            words = 16 if small_words else 256
            book = random.normal(size=(pieces, 2, words)).astype(np.float32)
            extra = {"codebook": book.reshape(-1), "num_sub_vectors": pieces}
        case CodeKind.TABLE:
            per_row = dimension // 2
            table = random.normal(size=per_row * 256).astype(np.float32)
            extra = {"codebook": table, "base": 1.0}
        case CodeKind.BYTES:
            query = random.integers(0, 256, dimension).astype(np.uint8)
            extra = {"factor": 0.01}
        case CodeKind.PRODUCTS:
            extra = {"factor": -0.5, "base": 2.0}
        case CodeKind.ROTATED | CodeKind.ROTATED_WIDE:
            factors, extra = (add, scale), {"factor": 127.5, "base": -3.0}
    if kind is CodeKind.VECTORS:
        extra = {"metric": Metric(int(random.integers(0, 3)))}
        values: Any = random.normal(size=rows * dimension).astype(
            random.choice([np.float16, np.float32, np.float64])
        )
        query = query.astype(np.float64 if values.dtype == np.float64 else np.float32)
    elif kind is CodeKind.ROTATED_WIDE:
        values = random.integers(0, 512, rows * dimension).astype(np.uint16)
    else:
        values = random.integers(0, 256, rows * per_row).astype(np.uint8)
    codes = PackedCodes(values, per_row * values.itemsize, *factors)
    if random.random() < 0.7:
        own = np.repeat(centers, lengths, axis=0)
        factors = factors or what_bounds_need(kind, values, own, extra)
    addresses = random.permutation(rows).astype(np.uint64)
    admitted = random.random(rows) < random.choice([0.02, 0.5, 0.95, 1])
    probes = Probes(starts, lengths, centers.reshape(-1), bases)
    return CodeQuery(kind, query, dimension, **extra), codes, probes, addresses, admitted


def what_bounds_need(
    kind: CodeKind, values: Any, centers: Any, extra: dict[str, Any]
) -> tuple[Any, ...]:
    """Return what tells rows of some kinds to be too far, as `PackedCodes` says it."""
    wide = values.reshape(len(centers), -1)
    if kind is CodeKind.BYTES:
        whole = wide.astype(np.float32)
        return (np.float32(extra["factor"]) * (whole * (whole - 256)).sum(axis=1),)
    if kind is not CodeKind.VECTORS:
        return ()
    is_normal = extra["metric"] is Metric.COSINE
    each = [
        native.quantize_rows(row[None], center, is_normal=is_normal)
        for row, center in zip(wide, centers, strict=True)
    ]
    numbers, squares, steps = (np.concatenate(own) for own in zip(*each, strict=True))
    is_l2 = extra["metric"] is Metric.L2
    add = squares if is_l2 else np.empty(0, np.float32)
    return add, steps * np.float32(-2 if is_l2 else -1), numbers.reshape(-1)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1 << 30), count=st.sampled_from([1, 7, 64, 5000]))
def test_results_match_the_definition(kind: CodeKind, seed: int, count: int) -> None:
    arguments = case(seed, kind, small_words=seed % 2 == 1)
    expected, apart = reference.scan_partitions(*arguments, count)
    found, scores = native.scan_partitions(*arguments, count)
    assert len(found) == len(expected)
    np.testing.assert_allclose(scores, apart, rtol=2e-4, atol=2e-2)
    differ = found != expected
    # Sums in another order may swap rows that are as far, or as good as.
    np.testing.assert_allclose(scores[differ], apart[differ], rtol=2e-4, atol=2e-2)


@given(seed=st.integers(0, 1 << 30))
def test_bounds_exclude_vectors_outside(seed: int) -> None:
    arguments = case(seed, CodeKind.BYTES)
    _, every = native.scan_partitions(*arguments, 5000)
    lower, upper = float(np.quantile(every, 0.2)), float(np.quantile(every, 0.7))
    _, scores = native.scan_partitions(*arguments, 5000, (lower, upper))
    np.testing.assert_array_equal(scores, every[(every >= lower) & (every < upper)])


def test_scores_that_are_no_numbers_are_never_found() -> None:
    asked, codes, probes, addresses, admitted = case(3, CodeKind.VECTORS)
    codes.values[:] = np.nan
    codes.scale[:] = np.nan
    found, _ = native.scan_partitions(asked, codes, probes, addresses, admitted, 10)
    assert len(found) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_mismatched_arguments_are_rejected(kind: CodeKind) -> None:
    asked, codes, probes, addresses, admitted = case(5, kind)
    beyond = Probes(probes.starts, probes.lengths + len(addresses), probes.centers, probes.bases)
    with pytest.raises(LanceletError):
        native.scan_partitions(asked, codes, beyond, addresses, admitted, 10)
    wide = PackedCodes(codes.values, codes.row_bytes + 1, codes.add, codes.scale)
    with pytest.raises(LanceletError):
        native.scan_partitions(asked, wide, probes, addresses, admitted, 10)
    with pytest.raises(LanceletError):
        native.scan_partitions(asked, codes, probes, addresses, admitted[:-1], 10)


@given(seed=st.integers(0, 1 << 30))
def test_admits_the_rows_that_masks_of_their_fragments_have(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 40, int(random.integers(0, 5)))
    fragments = np.sort(random.choice(np.arange(2, 12), len(sizes), replace=False))
    mask = random.random(int(sizes.sum())) < 0.5
    masks = RowMasks(fragments, np.cumsum([0, *sizes]), mask)
    own = random.integers(0, 14, 300).astype(np.uint64), random.integers(0, 40, 300, np.uint64)
    addresses = own[0] << np.uint64(32) | own[1]
    addresses[random.random(300) < 0.1] = NO_ADDRESS
    starts, lengths = np.array([200, 0, 7]), np.array([100, 5, 0])
    expected, found = random.random((2, 300)) < 0.5
    is_asked = np.r_[0:5, 200:300]
    untouched = np.delete(found, is_asked)
    reference.prefilter_rows(addresses, starts, lengths, masks, expected)
    native.prefilter_rows(addresses, starts, lengths, masks, found)
    np.testing.assert_array_equal(found[is_asked], expected[is_asked])
    np.testing.assert_array_equal(np.delete(found, is_asked), untouched)
    for place in is_asked.tolist():
        fragment, offset = int(own[0][place]), int(own[1][place])
        rows = dict(zip(fragments.tolist(), np.split(mask, np.cumsum(sizes)[:-1]), strict=False))
        is_there = addresses[place] != NO_ADDRESS and offset < len(rows.get(fragment, ()))
        assert found[place] == (is_there and rows[fragment][offset])


def test_masks_that_do_not_fit_are_rejected() -> None:
    addresses, admitted = np.arange(4, dtype=np.uint64), np.zeros(4, np.bool_)
    fragments, starts, mask = np.array([0]), np.array([0, 4]), np.ones(4, np.bool_)
    whole = np.array([0]), np.array([4])
    for bad in (
        (addresses, np.array([1]), whole[1], RowMasks(fragments, starts, mask), admitted),
        (addresses, *whole, RowMasks(fragments, starts + 1, mask), admitted),
        (addresses, *whole, RowMasks(fragments, starts[::-1].copy(), mask), admitted),
        (addresses, *whole, RowMasks(fragments, starts[:1], mask), admitted),
        (addresses, *whole, RowMasks(fragments, starts, mask), admitted[:3]),
    ):
        with pytest.raises(LanceletError):
            native.prefilter_rows(*bad)

"""Measures of the rows of a scan, asked for as Substrait has it, are those of the reference."""

import contextlib

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.dataset import ScannerBuilder as TheirBuilder

import lancelet
from lancelet.dataset import ScannerBuilder
from lancelet.errors import InvalidInputError
from lancelet.scan.substrait import read_aggregate

FUNCTIONS = ["count", "sum", "min", "max", "avg:any"]
COUNT, SUM, MIN, MAX, AVG = range(5)
X, Y, S, F, U = range(5)
ROWS = pa.table(
    {
        "x": pa.array([1, 2, 1, None], pa.int32()),
        "y": [1, 2, 3, 4],
        "s": ["a", "b", None, "a"],
        "f": pa.array([1.5, 2, None, 3], pa.float32()),
        "u": pa.array([1, 2, 3, 4], pa.uint8()),
    }
)


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *parts):
    data = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(data)) + data


def column(place):
    return message(2, message(1, message(2, number(1, place))), message(4))


def measure(function, *places, invocation=1):
    arguments = [message(7, message(3, column(place))) for place in places]
    return message(4, message(1, number(1, function), number(6, invocation), *arguments))


def plan(measures, groups=(), names=(), *, inline=False):
    if inline:
        parts = [message(3, *(message(1, column(group)) for group in groups))]
    else:
        places = message(2, *(varint(place) for place in range(len(groups))))
        parts = [message(3, places), *(message(5, column(group)) for group in groups)]
    aggregate = message(4, *(parts if groups else []), *measures)
    functions = [
        message(2, message(3, number(2, anchor), message(3, name.encode())))
        for anchor, name in enumerate(FUNCTIONS)
    ]
    root = message(2, message(1, aggregate), *(message(2, name.encode()) for name in names))
    return b"".join([*functions, message(3, root), message(8, number(1, 1), message(2, b"u"))])


PLANS = {
    "rows": plan([measure(COUNT)]),
    "every function": plan(
        [measure(COUNT, S), measure(SUM, Y), measure(MIN, Y), measure(MAX, F), measure(AVG, X)]
    ),
    "by group": plan(
        [measure(SUM, Y), measure(SUM, F), measure(SUM, U), measure(COUNT, S, invocation=2)],
        [X],
        ["g", "a", "b"],
    ),
    "by two groups": plan([measure(COUNT)], [S, X]),
    "groups within groupings": plan([measure(COUNT)], [S], inline=True),
    "groups alone": plan([], [S]),
    "texts": plan([measure(MIN, S), measure(MAX, S)]),
    "the same twice": plan([measure(COUNT), measure(COUNT)], [], ["a", "b"]),
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("aggregate"))
    lance.write_dataset(ROWS, path, max_rows_per_file=3)
    return lance.dataset(path), lancelet.dataset(path)


@pytest.mark.interop
@pytest.mark.parametrize("where", [None, "y > 1", "y > 100"])
@pytest.mark.parametrize("asked", PLANS.values(), ids=PLANS)
def test_measures_are_those_of_the_reference(datasets, asked, where):
    theirs, ours = (
        builder(dataset).filter(where).substrait_aggregate(asked).to_scanner()
        if where is not None
        else builder(dataset).substrait_aggregate(asked).to_scanner()
        for builder, dataset in zip((TheirBuilder, ScannerBuilder), datasets, strict=True)
    )
    expected, found = theirs.to_table(), ours.to_table()
    assert found.schema == expected.schema
    rows = [sorted(map(str, zip(*table.columns, strict=True))) for table in (found, expected)]
    assert rows[0] == rows[1]
    assert ours.to_reader().read_all() == found


WRONG = {
    "no message": b"zz",
    "a function that was not declared": plan([measure(9)]),
    "a sum of texts": plan([measure(SUM, S)]),
    "nothing": plan([]),
}


@pytest.mark.interop
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_arguments_rejected_by_the_reference_are_rejected(datasets, wrong):
    theirs, ours = datasets
    with pytest.raises(Exception) as refused:  # noqa: PT011 - its class is the point
        TheirBuilder(theirs).substrait_aggregate(wrong).to_scanner().to_table()
    assert issubclass(refused.type, ValueError)
    with pytest.raises(InvalidInputError):
        ScannerBuilder(ours).substrait_aggregate(wrong).to_scanner().to_table()


@pytest.mark.parametrize(
    "wrong",
    [
        plan([measure(SUM, 9)]),
        plan([measure(SUM, Y, X)]),
        plan([measure(SUM)]),
        plan([measure(SUM, Y, invocation=2)]),
        plan([message(4, message(1, number(1, SUM)), message(2, column(0)))]),
        plan([measure(COUNT)])[:-1],
        message(3, message(2, message(1, message(1)))),
        message(3),
        b"\xff" * 11,
    ],
)
def test_input_that_cannot_be_done_is_rejected(datasets, wrong):
    with pytest.raises(InvalidInputError):
        ScannerBuilder(datasets[1]).substrait_aggregate(wrong)


def test_a_limit_is_for_the_result(datasets):
    with pytest.raises(InvalidInputError, match="Apply limit to the result"):
        ScannerBuilder(datasets[1]).limit(1).substrait_aggregate(PLANS["rows"]).to_scanner()


@given(st.binary(max_size=200) | st.integers(0, 300).map(lambda cut: PLANS["by group"][:cut]))
def test_any_bytes_are_read_or_rejected(data):
    with contextlib.suppress(InvalidInputError):
        assert read_aggregate(data, ROWS.schema).columns

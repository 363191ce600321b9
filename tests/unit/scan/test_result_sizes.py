"""Functions with results much larger than their arguments are rejected before evaluation."""

import tracemalloc

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import MemoryLimitError

ROWS = pa.table(
    {
        "s": ["ab", None, "c"],
        "big": ["x" * 1000] * 3,
        "n": [1, 2, 10**9],
        "t": pa.array([0, 1, 2], pa.timestamp("s")),
        "l": [[1], [2, 3], None],
    }
)
HUGE = [
    "length(repeat('a', 1000000000)) > 0",
    "length(repeat(s, 1000000000)) > 0",
    "length(repeat(s, 9223372036854775807)) > 0",
    "length(lpad(s, 1000000000)) > 0",
    "length(rpad(s, 2000000000, 'ü')) > 0",
    "length(replace(repeat(big, 100), 'x', repeat('y', 10000))) > 0",
    "length(regexp_replace(repeat(big, 100), 'x', repeat('y', 10000), 'g')) > 0",
    "length(regexp_replace(repeat(big, 10000), '(x+)', repeat('\\1', 1000), 'g')) > 0",
    "length(concat(s, repeat('a', 100000000))) > 0",
    "length(s || repeat('a', 100000000)) > 0",
    "length(concat_ws(repeat('a', 100000000), s, s)) > 0",
    "length(to_char(t, repeat('%c', 10000000))) > 0",
    "array_length(array_repeat(s, 1000000000)) > 0",
    "array_length(array_repeat(1, 1000000000)) > 0",
    "array_length(array_repeat(NULL, 1000000000)) > 0",
    "array_length(array_resize(l, 1000000000, 1)) > 0",
    "array_length(range(1000000000)) > 0",
    "array_length(range(0, n)) > 0",
    "array_length(generate_series(1, 9223372036854775807)) > 0",
    "array_length(generate_series(1000000000, 1, -1)) > 0",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return lancelet.write_dataset(ROWS, str(tmp_path_factory.mktemp("t")))


@pytest.mark.parametrize("condition", HUGE)
def test_a_result_that_is_too_large_is_rejected_before_it_is_computed(table, condition):
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(MemoryLimitError, match="limit"):
            table.to_table(filter=condition)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 26
    assert pa.total_allocated_bytes() - before < 1 << 26


def test_results_of_usual_sizes_are_computed(table):
    found = table.to_table(
        {
            "r": "repeat(s, 2)",
            "p": "lpad(s, 4, '-')",
            "c": "s || big",
            "e": "regexp_replace(s, '(b)', '\\1\\1')",
            "a": "array_repeat(s, 2)",
            "g": "generate_series(3, 1, -1)",
            "z": "array_resize(l, 2, 9)",
            "none": "repeat(s, -1)",
        }
    )
    assert found.to_pylist()[0] == {
        "r": "abab",
        "p": "--ab",
        "c": "ab" + "x" * 1000,
        "e": "abb",
        "a": ["ab", "ab"],
        "g": [3, 2, 1],
        "z": [1, 9],
        "none": "",
    }

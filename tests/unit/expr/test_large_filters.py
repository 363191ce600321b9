"""Filters that programs write grow with their text: in work, in memory, and in depth."""

import sys
import tracemalloc

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import ExpressionError
from lancelet.expr.compile import compile_filter
from lancelet.expr.lexer import Lexer
from lancelet.expr.parse import parse

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])
ROWS = pa.table({"x": range(9), "s": list("abcdefghi")})


def calls_of(text):
    """Count the calls of functions that compiling takes; these do not depend on the machine."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        compile_filter(text, SCHEMA)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "part", ["x = {}", "x > {}", "(x = {0} AND s = '{0}')", "x != {}", "s = '{}'"]
)
@pytest.mark.parametrize("word", [" OR ", " AND "])
def test_a_chain_costs_as_much_again_for_each_part(part, word):
    compile_filter("x = 1", SCHEMA)
    short, long = (word.join(map(part.format, range(count))) for count in (250, 1000))
    assert calls_of(long) < 5 * calls_of(short)


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_a_long_text_costs_a_few_times_its_size(quote):
    text = f"{quote}{'a' * 1_000_000}{quote * 2}{quote}"
    tracemalloc.start()
    try:
        token = Lexer(text).token
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(token.value) == 1_000_001
    assert peak < 5 * len(text)


@pytest.mark.parametrize("quote", ["'", '"', "`"])
@pytest.mark.parametrize("inner", ["", "a", "a{0}{0}b", "{0}{0}", "{0}{0}{0}{0}", "a{0}{0}"])
def test_quotes_within_quotes_are_doubled(quote, inner):
    written = inner.format(quote)
    assert Lexer(f"{quote}{written}{quote} x").token.value == written.replace(quote * 2, quote)


def test_a_chain_of_texts_has_any_length(tmp_path):
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(ROWS, uri)
    for count in (3, 200):
        text = f"{' || '.join(['s'] * count)} = '{'b' * count}'"
        assert dataset.to_table(filter=text).column("x").to_pylist() == [1]
        assert lance.dataset(uri).to_table(filter=text) == dataset.to_table(filter=text)
    text = f"{' || '.join(['s', 'NULL'] * 2000)} IS NULL"
    assert dataset.count_rows(text) == 9


@pytest.mark.parametrize(
    "text", ["a || b || c", "(a || b) || c", "a || (b || c)", "a || b + 1 || c"]
)
def test_a_chain_of_texts_is_written_as_it_was_read(text):
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize("sign", ["+", "-", "*", "|"])
def test_a_chain_that_is_too_deep_is_reported(sign):
    with pytest.raises(ExpressionError, match="nested too deeply"):
        compile_filter(f"{f' {sign} '.join(['x'] * 5000)} = 1", SCHEMA)
    assert compile_filter(f"{f' {sign} '.join(['x'] * 50)} = 1", SCHEMA)

"""Token sets written as automata round trip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.index.inverted.tokens import (
    FstTokens,
    TokenFst,
    all_tokens,
    render_fst,
)

TOKENS = st.text("abté", max_size=6)


def rendered(tokens: dict[str, int]) -> bytes:
    ordered = sorted((token.encode(), number) for token, number in tokens.items())
    ends = np.cumsum([0, *(len(token) for token, _ in ordered)], dtype=np.int64)
    data = np.frombuffer(b"".join(token for token, _ in ordered), np.uint8)
    return render_fst(ends, data, np.array([number for _, number in ordered], np.int64))


@given(st.dictionaries(TOKENS, st.integers(0, (1 << 32) - 1), max_size=60), TOKENS)
def test_every_token_has_its_number(tokens: dict[str, int], prefix: str) -> None:
    automaton = TokenFst(rendered(tokens))
    assert automaton.num_keys == len(tokens)
    written = FstTokens(automaton, len(tokens))
    ordered = sorted(tokens.items(), key=lambda pair: pair[0].encode())
    assert list(written.starting_with("")) == ordered
    assert list(written.starting_with(prefix)) == [
        pair for pair in ordered if pair[0].startswith(prefix)
    ]
    for token, number in tokens.items():
        assert written.find(token) == number
        assert written.find(token + "\0\0") is None


def test_tokens_that_are_no_text_are_damage() -> None:
    data = np.frombuffer(b"\xff", np.uint8)
    automaton = TokenFst(render_fst(np.array([0, 1]), data, np.zeros(1, np.int64)))
    with pytest.raises(CorruptDataError, match="invalid UTF-8"):
        all_tokens(FstTokens(automaton, 1), 1)


def test_more_tokens_than_postings_are_damage() -> None:
    automaton = TokenFst(rendered({"a": 0, "b": 1}))
    with pytest.raises(CorruptDataError):
        all_tokens(FstTokens(automaton, 1), 1)

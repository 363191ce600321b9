"""Token sets that are written as automata are read back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import InternalError
from lancelet.index.inverted.automaton import TokenAutomaton
from lancelet.index.inverted.automaton_writer import render_automaton

TOKENS = st.binary(max_size=4) | st.text("abt", max_size=6).map(str.encode)


@given(st.dictionaries(TOKENS, st.integers(0, (1 << 32) - 1), max_size=60))
def test_every_token_has_its_number(tokens: dict[bytes, int]) -> None:
    written = TokenAutomaton(render_automaton(sorted(tokens.items())))
    assert dict(written.items()) == tokens
    assert written.num_keys == len(tokens)
    for token, number in tokens.items():
        assert written.find(token) == number
        assert written.find(token + b"\0\0") is None


@pytest.mark.parametrize("count", [1, 32, 33, 63, 64, 255, 256])
def test_nodes_have_as_many_ways_as_there_are_bytes(count: int) -> None:
    tokens = [(bytes([first, second]), first) for first in range(count) for second in (0, first)]
    tokens = sorted(dict(tokens).items())
    assert list(TokenAutomaton(render_automaton(tokens)).items()) == tokens


def test_tokens_out_of_order_are_refused() -> None:
    with pytest.raises(InternalError, match="not in order"):
        render_automaton([(b"b", 0), (b"a", 1)])

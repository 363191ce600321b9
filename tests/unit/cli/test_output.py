"""Tables, facts and bars as text."""

import io
import json
from datetime import UTC, datetime

from lancelet.cli.output import Output, bytes_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_are_aligned_and_long_cells_are_cut() -> None:
    stream = io.StringIO()
    Output(stream=stream).table(("a", "long name"), [(1, "x" * 100), (None, "two\nlines")])
    lines = stream.getvalue().splitlines()
    assert lines[0] == "a  long name"
    assert lines[1] == "1  " + "x" * 57 + "..."
    assert lines[2] == "   two lines"


def test_a_table_of_nothing_is_said_to_be_so() -> None:
    stream = io.StringIO()
    Output(stream=stream).table(("a",), [])
    assert stream.getvalue() == "nothing\n"


def test_values_without_json_of_their_own_are_told() -> None:
    stream = io.StringIO()
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    Output(is_json=True, stream=stream).facts({"b": b"\x00", "t": moment, "s": {1}, "o": 1 + 2j})
    assert json.loads(stream.getvalue()) == {
        "b": "AA==",
        "t": "2026-01-02T00:00:00+00:00",
        "s": [1],
        "o": "(1+2j)",
    }


def test_facts_of_several_lines_stay_in_their_column() -> None:
    stream = io.StringIO()
    Output(stream=stream).facts({"a": "one\ntwo", "name": None})
    assert stream.getvalue() == "a     one\n      two\nname\n"


def test_bars_are_drawn_for_people_only() -> None:
    terminal = Terminal()
    bar = Output(errors=terminal).progress("work", 2)
    bar.advance()
    bar.advance()
    assert "2/2" in terminal.getvalue()
    for output in (Output(is_json=True, errors=Terminal()), Output(errors=io.StringIO())):
        output.progress("work", 1).advance()
        assert output.errors.getvalue() == ""


def test_bytes_are_told_in_the_unit_that_fits() -> None:
    assert [bytes_text(1024**power) for power in range(5)] == [
        "1 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 GiB",
        "1.0 TiB",
    ]

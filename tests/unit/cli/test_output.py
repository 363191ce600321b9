"""Tables, facts and bars as text."""

import io
import json
from datetime import UTC, datetime

from lancelet.cli.output import Form, Output
from lancelet.dataset.show.display import size_text
from lancelet.errors import InvalidInputError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_are_aligned_and_whole_where_they_are_piped() -> None:
    stream = io.StringIO()
    rows = [(1, "x" * 100, 0.5), (None, "two\nlines", 12)]
    Output(stream=stream).table(("a", "long name", "n"), rows)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "a  long name" + " " * 91 + "    n"
    assert lines[1] == "1  " + "x" * 100 + "  0.5"
    assert lines[2] == "   two lines" + " " * 91 + "   12"


def test_tables_fit_a_terminal_and_have_a_bold_header(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    Output(stream=stream).table(("a", "b"), [(1, "x" * 100)])
    header, rule, row = stream.getvalue().splitlines()
    assert header.startswith("\x1b[1m")
    assert "─" in rule
    assert len(row) <= 40
    assert row.endswith("x…")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    Output(stream=plain).table(("a", "b"), [(1, "x" * 100)])
    assert "\x1b" not in plain.getvalue()


def test_control_characters_do_not_reach_the_terminal() -> None:
    stream, errors = io.StringIO(), io.StringIO()
    out = Output(stream=stream, errors=errors)
    out.table(("a\nb", "c\x1b[2J"), [("x\r", "\x9b31m"), ("é\u00a0", "\x07")])
    out.facts({"name": "\x1b]0;title\x07\nnext"})
    out.text("\x1b[1m", {})
    out.warn("\x1b[1m")
    out.error(InvalidInputError("\x1b[1m", name="\x1b[1m"))
    printed = stream.getvalue() + errors.getvalue()
    assert all(character.isprintable() for character in printed if character not in "\n\u00a0")
    assert stream.getvalue().splitlines()[:2] == ["a b  c\\x1b[2J", "x\\r  \\x9b31m"]


def test_a_table_without_rows_is_reported() -> None:
    stream = io.StringIO()
    Output(stream=stream).table(("a",), [])
    assert stream.getvalue() == "no rows\n"


def test_values_without_a_json_form_are_printed() -> None:
    stream = io.StringIO()
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    Output(form=Form.JSON, stream=stream).facts({"b": b"\x00", "t": moment, "s": {1}, "o": 1 + 2j})
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
    for output in (Output(form=Form.JSON, errors=Terminal()), Output(errors=io.StringIO())):
        output.progress("work", 1).advance()
        assert output.errors.getvalue() == ""


def test_bytes_are_printed_in_a_suitable_unit() -> None:
    assert [size_text(1024**power) for power in range(5)] == [
        "1 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 GiB",
        "1.0 TiB",
    ]

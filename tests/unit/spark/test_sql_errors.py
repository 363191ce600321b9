"""Errors of tasks, which show a generated query, point to the text of the statement."""

import pytest
from pyspark.errors import ArithmeticException, SparkRuntimeException

from lancelet.spark.sql.run import _without_query
from lancelet.spark.sql.source import Source

STATEMENT = "UPDATE lance.`/t` SET n = (SELECT id FROM lance.`/t`), m = 1 / (m - m)"


@pytest.mark.parametrize(
    ("generated", "marked", "expected"),
    [
        (
            "`id`, ((SELECT id FROM _pyspark_0a AS `/t`)) AS",
            "((SELECT id FROM _pyspark_0a",
            "(SELECT",
        ),
        ("SELECT 0 AS __lancelet_action, (1 / (m - m)) AS `m`", "1 / (m - m)", "1 / (m - m)"),
        ("SELECT 0 AS __lancelet_action, (1 / (m - m)) AS `m`", "0", None),
    ],
)
def test_the_marked_expression_is_found_in_the_statement(generated, marked, expected):
    marks = " " * generated.index(marked) + "^" * len(marked)
    shown = f"== SQL (line 1, position 9) ==\n{generated}\n{marks}\n"
    error = ArithmeticException(f"[SOME_CLASS] It failed. SQLSTATE: 1\n{shown}")
    found = _without_query(Source(STATEMENT), error)
    assert isinstance(found, ArithmeticException)
    assert "__lancelet" not in str(found)
    assert "It failed." in str(found)
    notes = getattr(found, "__notes__", [])
    if expected is None:
        assert notes == []
    else:
        column = STATEMENT.index(expected)
        assert notes == [f"line 1, column {column + 1}:\n{STATEMENT}\n{' ' * column}^"]


def test_other_errors_are_unchanged():
    error = SparkRuntimeException("[SOME_CLASS] It failed.")
    assert _without_query(Source(STATEMENT), error) is error

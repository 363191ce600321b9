"""Column definitions of CREATE TABLE and ALTER TABLE, parsed by Spark.

    (id BIGINT NOT NULL, code CHAR(3), v ARRAY<FLOAT>)
     id BIGINT NOT NULL, code STRING , v ARRAY<FLOAT>      the length is kept as field metadata

Spark has no public parser for CHAR and VARCHAR, so they are read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, Token, edited
from lancelet.spark.types import LENGTH_KEY

_NO_CONSTRAINT: Final = (
    "Lance tables have no constraints except NOT NULL; check rows when they are written, and keep "
    "keys unique with MERGE"
)
_UNSUPPORTED: Final = {
    "DEFAULT": "columns have no default values: a missing value is null; set the value when "
    "writing, as in coalesce(value, default)",
    "GENERATED": "columns cannot be generated; compute the value in the query that writes it, or "
    "number rows by `_rowid`",
    **dict.fromkeys(
        ("PRIMARY KEY", "UNIQUE", "FOREIGN KEY", "REFERENCES", "CONSTRAINT", "CHECK"),
        _NO_CONSTRAINT,
    ),
}
_LENGTHS: Final = {"CHAR": "char", "CHARACTER": "char", "VARCHAR": "varchar"}


def column_definitions(
    session: Session, parser: StatementParser, problem: str = "invalid column definitions"
) -> StructType:
    """Parse column definitions in parentheses, or those up to the end of the statement."""
    start = parser.position
    if parser.take("L_PAREN"):
        first = parser.position
        text = parser.text_until(("R_PAREN",))
        parser.need("R_PAREN")
    else:
        first = start
        text = parser.text_until()
    return parse_columns(session, parser.source, text, (start, first), problem)


def parse_columns(
    session: Session, source: Source, text: str, at: tuple[int, int], problem: str
) -> StructType:
    """Return the columns that a text defines; `at` is its position for errors, and its start."""
    start, first = at
    lengths: dict[int, str] = {}
    edits = []
    for number, column in enumerate(_columns(Source(text).tokens)):
        for token in column[:1] if column[0].kind == "PRIMARY_KEY" else column[1:]:
            if token.word in _UNSUPPORTED:
                source.fail(_UNSUPPORTED[token.word], first + token.start)
        if column[0].word in _UNSUPPORTED and len(column) > 1 and column[1].kind == "L_PAREN":
            source.fail(_NO_CONSTRAINT, first + column[0].start)
        for index, token in enumerate(column):
            size = column[index + 1 : index + 4]
            if token.word not in _LENGTHS or [each.kind for each in size] != _SIZE:
                continue
            is_whole = index == 1 or (index == 2 and column[1].kind == "COLON")
            if not is_whole:
                source.fail(
                    f"{token.word} is supported for whole columns only; use STRING within "
                    "arrays, maps and structs",
                    first + token.start,
                )
            lengths[number] = f"{_LENGTHS[token.word]}({size[1].text})"
            edits.append((token.start, size[2].stop, "STRING"))
    try:
        found = session.spark.createDataFrame([], edited(text, edits)).schema
    except PySparkException as error:
        # The positions in Spark's own message refer to a generated text.
        message = (error.getMessage() or str(error)).splitlines()[0]
        source.fail(f"{problem}: {message}", start)
    return StructType(
        [
            StructField(each.name, each.dataType, each.nullable, {LENGTH_KEY: lengths[number]})
            if number in lengths
            else each
            for number, each in enumerate(found)
        ]
    )


_SIZE: Final = ["L_PAREN", "NUMBER", "R_PAREN"]


def _columns(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each column definition."""
    column: list[Token] = []
    depth = 0
    for token in tokens:
        if token.kind not in {"STRING", "IDENTIFIER"}:
            depth += sum(map(token.text.count, "(<")) - sum(map(token.text.count, ")>"))
        if token.kind == "COMMA" and not depth:
            if column:
                yield column
            column = []
        else:
            column.append(token)
    if column:
        yield column

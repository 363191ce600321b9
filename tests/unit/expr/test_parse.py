"""What the grammar reads, and how it reports what it cannot."""

import pyarrow as pa
import pytest

from lancelet.errors import ExpressionError, InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Operator
from lancelet.expr.parse import parse

SAME = {
    "a == 1": "a = 1",
    "a != 1": "a <> 1",
    "a <=> 1": "(a IS NOT DISTINCT FROM 1)",
    "a between 1 and 2": "a >= 1 AND a <= 2",
    "a not between 1 and 2": "NOT (a >= 1 AND a <= 2)",
    "a is not null": "NOT a IS NULL",
    "is_valid(a)": "a IS NOT NULL",
    "a is unknown": "a IS NULL",
    "a is false": "(NOT a) IS TRUE",
    "a is not true": "NOT (a IS TRUE)",
    "a in (1, b)": "a IN (1) OR a = b",
    "a not in (1, 2)": "NOT (a IN (1, 2))",
    "case a when 1 then 2 end": "case when a = 1 then 2 else null end",
    "a::int": "cast(a as integer)",
    "a::timestamp(3)": "cast(a as timestamp(3))",
    "try_cast(a as real)": "try_cast(a as float)",
    "cast(a as decimal(50, 2))": "arrow_cast(a, 'Decimal256(50, 2)')",
    "a ~ 'x'": "regexp_like(a, 'x')",
    "a !~* 'x'": "NOT regexp_like(a, 'x', 'i')",
    "substring(a from 2 for 3)": "substr(a, 2, 3)",
    "substring(a for 3)": "substr(a, 1, 3)",
    "trim(a)": "btrim(a)",
    "trim(leading 'x' from a)": "ltrim(a, 'x')",
    "trim(both from a)": "btrim(a)",
    "position('x' in a)": "strpos(a, 'x')",
    "extract(year from a)": "date_part('year', a)",
    "a['b']": "a.b",
    'a["b"].c': "a.b.c",
    "a[1]": "array_element(a, 1)",
    "a[1:2]": "array_slice(a, 1, 2)",
    "f(a).b": "f(a)['b']",
    "current_date": "current_date()",
    "[1, 2]": "ARRAY[1, 2]",
    '"a"': "'a'",
    "0x0a": "X'0A'",
    "interval 1 day": "interval '1' day",
    "interval '1 year 2 hours'": "interval '12 months 120 minutes'",
    "time '12:00'": "time '12:00:00.000'",
    "a /* c */ -- d": "a",
    "a ^ b": "a # b",
    "+a": "a",
    "- 4": "-4",
}


@pytest.mark.parametrize(("text", "same"), SAME.items())
def test_two_spellings_are_one_expression(text, same):
    assert parse(text) == parse(same)


PRECEDENCE = {
    "a or b and not c = d": "a or (b and (not (c = d)))",
    "a + b * c - d": "(a + (b * c)) - d",
    "a - b - c": "(a - b) - c",
    "a = b is true": "(a = b) is true",
    "a + 1 > b | c << 2": "(a + 1) > (b | (c << 2))",
    "- a::int": "- (a::int)",
    "a || b = c": "(a || b) = c",
    "a between b + 1 and c and d": "(a between (b + 1) and c) and d",
    "not a is null": "not (a is null)",
    "a is distinct from b and c": "(a is distinct from b) and c",
    "a & b | c # d": "(a & b) | (c # d)",
}


@pytest.mark.parametrize(("text", "grouped"), PRECEDENCE.items())
def test_operators_hold_as_in_sql(text, grouped):
    assert parse(text) == parse(grouped)


CONSTANTS = {
    "7": pa.scalar(7, pa.int64()),
    "-7": pa.scalar(-7, pa.int64()),
    "9223372036854775808": pa.scalar(2**63, pa.uint64()),
    "1e3": pa.scalar(1000.0),
    "true": pa.scalar(True),
    "null": pa.scalar(None),
    "'it''s'": pa.scalar("it's"),
    "X'00ff'": pa.scalar(b"\x00\xff"),
    "date '1969-12-31'": pa.scalar(-1, pa.int32()).cast(pa.date32()),
    "timestamp '1970-01-01 00:00:01'": pa.scalar(1_000_000, pa.timestamp("us")),
    "timestamp '1970-01-01T00:00:00.000000001'": pa.scalar(1, pa.timestamp("ns")),
    "timestamp '1970-01-01 01:00:00+01:00'": pa.scalar(0, pa.timestamp("us", "UTC")),
    "timestamp(0) '1970-01-01'": pa.scalar(0, pa.timestamp("s")),
    "time '00:00:01'": pa.scalar(1_000_000, pa.time64("us")),
    "interval '-2 days'": pa.scalar(pa.MonthDayNano([0, -2, 0])),
    "arrow_cast(5, 'UInt8')": pa.scalar(5, pa.uint8()),
    "arrow_cast('NaN', 'Float32')": pa.scalar(float("nan"), pa.float32()),
}


@pytest.mark.parametrize(("text", "scalar"), CONSTANTS.items())
def test_constants_have_the_type_they_are_written_in(text, scalar):
    assert parse(text) == ex.Literal(scalar)


@pytest.mark.parametrize(
    ("text", "precision", "scale"), [("1.50", 3, 2), (".5", 1, 1), ("1.", 1, 0)]
)
def test_decimals_keep_their_digits(text, precision, scale):
    assert parse(text).data_type == pa.decimal128(precision, scale)


def test_names_between_back_ticks_are_taken_as_they_are():
    assert parse("`a.b`.`c``d`.select_") == ex.Column(("a.b", "c`d", "select_"))


@pytest.mark.parametrize("name", ["a b", "1a", "select", "é", "`", "a.b", "date"])
def test_every_name_prints_so_that_it_reads_back(name):
    assert parse(str(ex.Column((name, "x")))) == ex.Column((name, "x"))


def test_long_lists_are_one_node_of_one_type():
    numbers = parse(f"a in ({', '.join(map(str, range(100_000)))})")
    assert numbers == ex.In(ex.column("a"), pa.array(range(100_000)))
    texts = parse("a in (" + ",".join(f"'k''{key}'" for key in range(1000)) + ")")
    assert texts.values[7].as_py() == "k'7"
    mixed = parse("a in (1, 2.25, -30000000000000000000)")
    assert mixed.values.type == pa.decimal128(22, 2)


def test_a_chain_of_thousands_is_no_nesting():
    assert len(parse(" or ".join(["a"] * 5000)).operands) == 5000


MISTAKES = {
    "": ("is empty", ""),
    "a >": ("expected a value, found the end", "a >"),
    "a > > b": ("expected a value, found '>'", "a > "),
    "(a = 1": ("expected ')', found the end", "(a = 1"),
    "a = 1)": ("unexpected ')' after the expression", "a = 1"),
    "a = 1; drop": ("unexpected character ';'", "a = 1"),
    "a = 'x": ("unclosed quote '", "a = "),
    "`a": ("unclosed quote `", ""),
    "a in ()": ("the list is empty", "a in "),
    "a in (select 1)": ("subqueries are not supported", "a in ("),
    "a in 1": ("expected a list in parentheses", "a in "),
    "a is 3": ("expected NULL, TRUE", "a is "),
    "cast(a as foo)": ("unknown type foo", "cast(a as "),
    "arrow_cast(a, 'Foo')": ("unknown Arrow type", "arrow_cast(a, "),
    "arrow_cast(a, b)": ("must be a quoted type", ""),
    "date '2020-13-01'": ("is not a date", "date "),
    "timestamp 'x'": ("is not a timestamp", "timestamp "),
    "time '25:00'": ("is not a time of day", "time "),
    "interval '3 foo'": ("unknown interval unit 'foo'", "interval "),
    "timestamp(3) '2020-01-01 00:00:00.0001'": ("out of range or too precise", "timestamp(3) "),
    "case end": ("'end' is a keyword", "case "),
    "case when a then b": ("expected END, found the end", "case when a then b"),
    "where a": ("is a keyword", ""),
    "a..b": ("expected a name", "a."),
    "a like 'x' escape 'yz'": ("ESCAPE requires one", "a like 'x' escape "),
    "a similar to 'x'": ("SIMILAR TO is not supported", "a "),
    "X'0g'": ("pairs of", ""),
    "[1, 'a']": ("must have one type", ""),
    "a = N'x'": ("unexpected 'x'", "a = N"),
}


@pytest.mark.parametrize(("text", "message", "before"), [(k, *v) for k, v in MISTAKES.items()])
def test_mistakes_are_shown_where_they_are(text, message, before):
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    said, shown, caret = str(raised.value).rsplit("\n", 2)
    assert message in said
    assert shown == text
    assert caret == " " * len(before) + "^"


def test_long_texts_are_shown_around_the_mistake():
    text = "a = 1 and " * 50 + "b ! 2" + " and c = 3" * 50
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    _, shown, caret = str(raised.value).split("\n")
    assert len(shown) < 150
    assert shown[len(caret) - 1] == "!"


def test_an_expression_error_is_a_value_error():
    assert issubclass(ExpressionError, ValueError)
    assert issubclass(ExpressionError, InvalidInputError)


@pytest.mark.parametrize("operator", list(Operator))
def test_negating_and_mirroring_twice_give_the_operator_back(operator):
    assert operator.negated.negated is operator
    assert operator.mirrored.mirrored is operator


@pytest.mark.parametrize(
    "word",
    [
        "date",
        "time",
        "timestamp",
        "interval",
        "case",
        "cast",
        "select",
        "order",
        "limit",
        "group",
        "table",
        "array",
    ],
)
@pytest.mark.parametrize("text", ["{} > 1", "b = {}", "({}) is not null", "abs({}) < 2", "{}"])
def test_keywords_that_nothing_follows_name_columns(word: str, text: str):
    assert parse(text.format(word)) == parse(text.format(f"`{word}`"))


def test_keywords_are_recognized_before_their_operands():
    assert parse("date < date '2020-06-01'") == parse("`date` < DATE '2020-06-01'")
    assert parse("decimal = decimal(5, 3) '12.000'").right.data_type == pa.decimal128(5, 3)
    assert parse("case when a then b end") != parse("`case`")


@pytest.mark.parametrize("text", ["-0.0", "- 0.00"])
def test_zero_keeps_its_sign(text):
    assert str(parse(text).scalar) == "-0.0"
    assert str(parse(str(parse(text))).scalar) == "-0.0"

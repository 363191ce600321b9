"""What is read of tables for a query: columns and filters, found without a session."""

import pyarrow as pa
import pytest

from lancelet.spark.sql.analysis import TableColumns, analyse
from lancelet.spark.sql.names import Reference, find_references, locate
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.source import Source, StatementError, parse_query

T = TableColumns(
    (
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("x", pa.float64()),
        pa.field("f", pa.float32()),
        pa.field("ok", pa.bool_()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("other day", pa.date32()),
        pa.field("current_date", pa.int32()),
    )
)
U = TableColumns(
    (pa.field("id", pa.int64()), pa.field("n", pa.int32()), pa.field("small", pa.int8()))
)


def uses(text, **parameters):
    return analyse(Source(text), parse_query(text), {"t": T, "u": U}, parameters)


def filter_of(condition, **parameters):
    return uses(f"SELECT id FROM t WHERE {condition}", **parameters)["t"].filter


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("id > 3", "`id` > 3"),
        ("3 > id", "`id` < 3"),
        ("t.ID IN (1, -2L)", "`id` IN (1, -2)"),
        ("id = 3 AND rlike(name, 'a')", "`id` = 3"),
        ("id = 3 OR rlike(name, 'a')", None),
        ("NOT (id = 3 AND rlike(name, 'a'))", None),
        ("(id = 1 AND name = upper('a')) OR id = 2", "(`id` = 1) OR (`id` = 2)"),
        (
            "name LIKE 'a%' AND name NOT LIKE '%b'",
            "(`name` LIKE 'a%') AND (`name` NOT LIKE '%b')",
        ),
        ("name = 'it''s'", None),
        ("name = 'a\\n'", None),
        ("name = 5", None),
        ("id = '5'", None),
        ("id = 1.5", "`id` = 1.5"),
        ("id = 1e0", None),
        ("price BETWEEN 0.06 - 0.01 AND 0.07", "(`price` >= 0.05) AND (`price` <= 0.07)"),
        ("price > 1e-1", None),
        ("price > 0.0000000000000000000000000000000000001", None),
        ("x >= 1.5", "`x` >= 1.5e0"),
        ("f >= 1.5", "`f` >= 1.5e0"),
        ("f >= 1.1", None),
        ("day < DATE '2024-01-31' + INTERVAL '1' MONTH", "`day` < DATE '2024-02-29'"),
        ("day < DATE '2024-03-01' - INTERVAL 1 DAYS", "`day` < DATE '2024-02-29'"),
        ("day = '2024-02-29'", "`day` = DATE '2024-02-29'"),
        ("day = '2024-2-9'", None),
        ("day = DATE '2023-02-29'", None),
        ("day < current_date()", None),
        ("day < `other day`", "`day` < `other day`"),
        ("at > TIMESTAMP '2024-01-01 00:00:00'", None),
        (
            "at > TIMESTAMP '2024-01-01 00:00:00+01:00'",
            "`at` > TIMESTAMP '2024-01-01 00:00:00.000000+01:00'",
        ),
        (
            "local > TIMESTAMP_NTZ '2024-01-01 00:00:00'",
            "`local` > TIMESTAMP '2024-01-01 00:00:00.000000'",
        ),
        ("local > TIMESTAMP '2024-01-01 00:00:00'", None),
        ("ok AND name IS NOT NULL", "(`ok`) AND (NOT (`name` IS NULL))"),
        ("id > rand() AND id > 3", None),
        ("id BETWEEN SYMMETRIC 3 AND 1", None),
        ("name LIKE 'a!%' ESCAPE '!'", None),
        ("name LIKE 'a_'", None),
        ("id IN (SELECT id FROM u)", None),
        ("(id, name) IN ((1, 'a'))", None),
        ("x.y = 3", None),
        ("u.id = 3", None),
    ],
)
def test_conditions_become_filters_where_both_mean_the_same(condition, wanted):
    assert filter_of(condition) == wanted


def test_values_of_parameters_are_constants():
    assert filter_of("id > :least AND name = :name", least=3, name="a") == (
        "(`id` > 3) AND (`name` = 'a')"
    )
    assert filter_of("name = :name", name="it's") is None
    assert filter_of("name = :name") is None


@pytest.mark.parametrize(
    ("join", "of_t", "of_u"),
    [
        ("JOIN", "both", "both"),
        ("LEFT JOIN", "where", "on"),
        ("RIGHT JOIN", "on", "where"),
        ("FULL JOIN", None, None),
        ("LEFT SEMI JOIN", "both", "on"),
        ("LEFT ANTI JOIN", "where", "on"),
        ("CROSS JOIN", "both", "both"),
    ],
)
def test_filters_never_cross_the_null_side_of_a_join(join, of_t, of_u):
    text = f"""SELECT name FROM t {join} u ON t.id = u.id AND t.id > 1 AND u.id > 2
               WHERE t.id < 8 AND u.id < 9"""
    found = uses(text)
    wanted = {
        "both": ("(`id` > 1) AND (`id` < 8)", "(`id` > 2) AND (`id` < 9)"),
        "where": ("`id` < 8", "`id` < 9"),
        "on": ("`id` > 1", "`id` > 2"),
        None: (None, None),
    }
    assert found["t"].filter == wanted[of_t][0]
    assert found["u"].filter == wanted[of_u][1]


def test_a_later_outer_join_prevents_pushdown():
    text = (
        "SELECT 1 FROM t JOIN u ON u.id = 1 RIGHT JOIN v ON t.id = v.id AND t.id = 2 WHERE t.id = 3"
    )
    found = uses(text)
    assert found["t"].filter == "(`id` = 2)" or found["t"].filter == "`id` = 2"
    assert found["u"].filter == "`id` = 1"


def test_columns_are_those_that_a_query_names():
    assert uses("SELECT upper(NAME) FROM t WHERE id > 1")["t"].columns == ("id", "name")
    assert uses("SELECT count(*) FROM t")["t"].columns == ("_rowaddr",)
    assert uses("SELECT id, _rowid FROM t")["t"].columns == ("id", "_rowid")
    inner = "SELECT name FROM t WHERE id IN (SELECT id FROM u WHERE u.n > t.x)"
    assert uses(inner)["t"].columns == ("id", "name", "x")
    assert uses(inner)["u"].columns == ("id", "n")
    assert uses("SELECT (SELECT max(name) FROM t), n FROM u")["u"].columns == ("n",)
    every = tuple(each.name for each in T.stored)
    for text in (
        "SELECT * FROM t",
        "SELECT t.* FROM t JOIN u ON t.id = u.id",
        "SELECT x FROM t AS r(a, b, c, d, x, e, f, g, h, i, j)",
        "SELECT id FROM t NATURAL JOIN u",
        "SELECT * FROM t PIVOT (sum(x) FOR name IN ('a'))",
        "SELECT IDENTIFIER('na' || 'me') FROM t",
        "FROM t |> WHERE id > 1",
        "TABLE t",
    ):
        assert uses(text)["t"].columns == every, text
    assert uses("SELECT t.* FROM t JOIN u ON t.id = u.id")["u"].columns == ("id",)
    assert uses("SELECT 1 FROM t WHERE EXISTS (SELECT * FROM u WHERE n = 1)")["u"].columns == ("n",)


def test_columns_of_another_table_are_none_of_this_one():
    def read(text):
        found = uses(text)
        return found["t"].columns, found["u"].columns

    both = (("id",), ("id", "n"))
    assert read("SELECT u.n FROM t JOIN u ON t.id = u.id") == both
    assert read("SELECT s.name, s.x, u.n FROM s JOIN u JOIN t ON t.id = s.id = u.id") == both
    assert read("SELECT o.x FROM t JOIN (SELECT n FROM u) AS o") == (("_rowaddr",), ("n",))
    # A name that may be this table's after all counts.
    grouped = "SELECT o.name FROM (t JOIN u ON t.id = u.id) AS o JOIN s ON s.x = s.ok"
    assert read(grouped)[0] == ("id", "name", "x", "ok")
    assert read("SELECT day.id, t.name FROM t JOIN u AS day")[0] == ("id", "name", "day")
    assert read("SELECT (SELECT max(u.n) FROM u WHERE t.name > 'a') FROM t")[0] == ("name",)
    assert read("SELECT (SELECT max(s.name) FROM u) FROM t JOIN s")[0] == ("name",)
    assert read("SELECT u.n FROM t JOIN u USING (id)") == both


def test_words_that_the_parser_takes_for_functions_are_columns_all_the_same():
    assert uses("SELECT current_date FROM t")["t"].columns == ("current_date",)
    text = "SELECT current_date FROM t JOIN (SELECT id AS current_date FROM u) v ON true"
    assert "current_date" in uses(text)["t"].columns


def test_limits_stop_a_scan_where_any_rows_will_do():
    assert uses("SELECT id FROM t LIMIT 5 OFFSET 2")["t"].limit == 7
    assert uses("SELECT id FROM t WHERE id > 1 LIMIT 5")["t"].limit == 5
    for text in (
        "SELECT id FROM t WHERE rlike(name, 'a') LIMIT 5",
        "SELECT id FROM t ORDER BY id LIMIT 5",
        "SELECT DISTINCT id FROM t LIMIT 5",
        "SELECT count(*) FROM t LIMIT 5",
        "SELECT sum(id) OVER () FROM t LIMIT 5",
        "SELECT id FROM t, u LIMIT 5",
        "SELECT id, explode(array(1)) FROM t LIMIT 5",
        "SELECT my_function(id) FROM t LIMIT 5",
        "SELECT id FROM t GROUP BY id LIMIT 5",
    ):
        assert uses(text)["t"].limit is None, text


def test_samples_are_taken_of_all_rows():
    text = "SELECT id FROM t TABLESAMPLE (10 PERCENT) REPEATABLE (1) WHERE id > 3"
    assert uses(text)["t"].filter is None


def test_tables_are_found_where_the_grammar_wants_them():
    def found(text):
        references = find_references(Source(text), {"lake": None})
        return [(each.title, each.branch, each.version) for each in references]

    assert found("SELECT lance.`a` FROM t AS lance") == []
    assert found("SELECT 1 FROM lance.`a`, lake.b.c@dev d") == [
        ("a", None, None),
        ("lake.b.c", "dev", None),
    ]
    assert found("SELECT lake.b.x, lake.b.y FROM lake.b VERSION AS OF 3") == [("lake.b", None, "3")]
    assert found("SELECT 1 FROM t GROUP BY a, lake.b.c ORDER BY x, lake.b.c") == []
    assert found("SELECT extract(year FROM lake.b.c) FROM (lake.b.c JOIN lake.d)") == [
        ("lake.b.c", None, None),
        ("lake.d", None, None),
    ]
    assert found("SELECT 'lance.`/x`' -- lance.`/y`\nFROM lance.`/z`") == [("/z", None, None)]


def test_errors_point_at_the_place():
    with pytest.raises(StatementError) as caught:
        Source("SELECT 1\nFORM t").fail("a word is wrong", 9)
    assert str(caught.value) == "a word is wrong\nline 2, column 1:\nFORM t\n^"


def located(text, **options):
    source = Source(text)
    (found,) = find_references(source, {})
    return locate(None, source, found, **options), found


def test_views_are_names_of_tables_where_a_table_stands():
    views = {"v": Reference(("lance", "/t"), 0, 0, options=(("storage.a", "b"),), view="V")}

    def found(text):
        source = Source(text)
        references = find_references(source, {}, views)
        assert all(each.parts == ("lance", "/t") for each in references)
        return [(source.text[each.start : each.stop], each.own) for each in references]

    assert found("SELECT v.id, v FROM v JOIN `V` VERSION AS OF 3 AS w ON v.id = w.v") == [
        ("v", "V"),
        ("`V` VERSION AS OF 3", "V"),
    ]
    assert found("SELECT v FROM t AS v, x.v, v.x, v(3)") == []
    assert found("WITH v AS (SELECT 1) SELECT * FROM v") == []
    assert found("WITH v (a, b) AS (SELECT 1, 2) SELECT * FROM v") == []
    source = Source("SELECT * FROM v WITH ('storage.c' = 'd')")
    (reference,) = find_references(source, {}, views)
    assert reference.select_options(storage=True) == {"a": "b", "c": "d"}
    assert find_references(source, {}) == []


def test_options_of_the_store_stand_behind_a_table():
    table, found = located(
        "SELECT * FROM lance.`s3://b/t`@dev WITH ('storage.region' = 'eu', storage.n = -1) x"
    )
    assert (table.uri, table.branch) == ("s3://b/t", "dev")
    assert dict(table.options) == {"region": "eu", "n": "-1"}
    assert found.select_options(storage=False) == {}
    table, found = located("INSERT INTO lance.`/t` WITH (target_bases = 'hot') SELECT 1",
                           valid_options={"target_bases"})  # fmt: skip
    assert found.select_options(storage=False) == {"target_bases": "hot"}
    assert not table.options
    (query,) = find_references(Source("WITH a AS (SELECT 1) SELECT * FROM lance.`/t`"), {})
    assert query.options == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM lance.`/t` WITH (target_bases = 'a')", "unknown option"),
        ("SELECT * FROM lance.`/t` WITH (storage.a = )", "expected the value of a property"),
        ("SELECT * FROM lance.`/t` WITH ('storage.a' = 'b'", "expected COMMA or"),
        ("SELECT * FROM lance.`/t` WITH ('storage.a' = 'b' 'c' = 'd')", "expected COMMA or"),
    ],
)
def test_options_that_a_table_does_not_have_are_rejected(text, message):
    with pytest.raises(StatementError, match=message):
        located(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id IS DISTINCT FROM lake.e.end FROM lake.e",
        "SELECT id IS NOT DISTINCT FROM lake.e.n FROM lake.e WHERE n IS DISTINCT FROM lake.e.id",
        "SELECT extract(year FROM lake.e.day), trim(both 'a' FROM lake.e.name) FROM lake.e",
    ],
)
def test_a_from_within_an_expression_is_not_followed_by_a_table(text):
    found = find_references(Source(text), {"lake": None})
    assert [each.start for each in found] == [text.rindex(" FROM lake.e") + len(" FROM ")] or (
        [each.start for each in found] == [text.index(" FROM lake.e WHERE") + len(" FROM ")]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("end > 1 WHERE x", "end > 1"),
        ("(end) + t.end WHERE x", "(end) + t.end"),
        ("CASE WHEN end > 1 THEN end ELSE t.end END WHERE x", None),
        ("CASE end WHEN 1 THEN CASE WHEN a THEN 'b' END END WHERE x", None),
        ("t.case + (CASE WHEN a WHERE b THEN c END) WHERE x", None),
        ("f(CASE WHEN a THEN b END, end) WHERE x", None),
        ("`end` IN (end, 2) AND NOT end WHERE x", None),
        ("t.where > 1 WHERE x", None),
    ],
)
def test_an_expression_ends_at_the_next_clause(text, expected):
    parser = StatementParser(Source(text), {}, {})
    assert parser.text_until(("WHERE",)) == (expected or text.removesuffix(" WHERE x"))
    assert parser.at("WHERE")


@pytest.mark.parametrize(
    "time",
    [
        "'2024-01-01'",
        "TIMESTAMP '2024-01-01 10:00:00'",
        "current_timestamp()",
        "now() - INTERVAL 1 HOURS",
        "(now() - interval 1 day)",
        "date_sub(current_date(), 1)",
    ],
)
def test_a_time_of_a_version_is_an_expression(time):
    text = f"SELECT * FROM lake.e TIMESTAMP AS OF {time} AS x WHERE a = 1"
    [found] = find_references(Source(text), {"lake": None})
    assert found.asof == time
    assert text[found.start : found.stop].endswith(time)


def test_the_position_in_a_generated_text_is_that_of_its_expression():
    origin = Source("UPDATE t SET a = nope(b), b = 1 WHERE nope(c)")
    made = Source("SELECT 1 AS x, (nope(b)) AS a FROM t WHERE nope(c)", origin)
    first, second = (made.text.index("nope(b)"), made.text.index("nope(c)"))
    assert "column 18:" in made.pointer(first)
    assert "column 39:" in made.pointer(second)

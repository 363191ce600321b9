"""Random queries over two tables with columns of every type that filters support."""

import datetime as dt
import decimal
import random

import pyarrow as pa

FIELDS = [
    ("id", pa.int64()),
    ("n", pa.int32()),
    ("tiny", pa.int8()),
    ("x", pa.float64()),
    ("f", pa.float32()),
    ("price", pa.decimal128(9, 2)),
    ("name", pa.string()),
    ("Day", pa.date32()),
    ("at", pa.timestamp("us", "UTC")),
    ("local", pa.timestamp("us")),
    ("ok", pa.bool_()),
    ("odd name", pa.int32()),
    ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ("items", pa.list_(pa.int32())),
]
CONSTANTS = {
    "id": ["3", "7L", "-1", "3.5", "100000000000", "id", "NULL"],
    "n": ["2", "-2", "2.0", "2147483648", "tiny", "'2'", "1 + 1"],
    "tiny": ["1", "200", "-1Y"],
    "x": ["0.5", "-0.0", "1e0", "2", "double('NaN')", "double('inf')", "f"],
    "f": ["0.5", "1.1", "2", "1e0", "float('NaN')"],
    "price": ["1.50", "1.5", "2", "0.015", "1e0", "0.5 + 1", "12345678901234567890.5"],
    "name": ["'b'", "''", "'B'", "'it''s'", "'a%'", "upper('b')", "'a\\nb'", "'\u00e9'"],
    "Day": [
        "DATE '2024-02-29'",
        "'2024-02-29'",
        "DATE '2024-01-31' + INTERVAL '1' MONTH",
        "DATE '2024-03-01' - INTERVAL 1 DAY",
        "TIMESTAMP '2024-02-29 00:00:00'",
        "DATE '2024-02-28' + 1",
    ],
    "at": [
        "TIMESTAMP '2024-02-29 12:00:00'",
        "TIMESTAMP '2024-02-29 12:00:00Z'",
        "'2024-02-29 12:00:00'",
        "DATE '2024-02-29'",
    ],
    "local": [
        "TIMESTAMP_NTZ '2024-02-29 12:00:00'",
        "'2024-02-29 12:00:00'",
        "DATE '2024-02-29'",
        "TIMESTAMP '2024-02-29 12:00:00'",
    ],
    "`odd name`": ["1", "n"],
    "s.a": ["1", "n"],
}
NUMBERS = ["id", "n", "tiny", "price", "`odd name`", "s.a"]
ORDERED = [*NUMBERS, "x", "f", "name", "Day", "at", "local", "ok"]
SETTINGS = {
    "spark.sql.ansi.enabled": ["true", "false"],
    "spark.sql.session.timeZone": ["UTC", "America/New_York", "Asia/Kolkata"],
}


def rows(seed, count):
    """Return rows of which each column has nulls, and values that are easily taken for others."""
    draw = random.Random(seed)
    nan, inf = float("nan"), float("inf")
    day, hour = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)  # noqa: DTZ001 - some columns have no zone
    near = [dt.timedelta(hours=each) for each in (-24, -5, 0, 5, 24)]
    known = {
        "id": list(range(10)),
        "n": [-2, 0, 1, 2, 3, 2**31 - 1],
        "tiny": [-1, 0, 1, 2],
        "x": [nan, inf, -inf, 0.0, -0.0, 0.5, 2.0],
        "f": [nan, 0.5, -0.0, 2.0, 1.100000023841858],
        "price": [decimal.Decimal(each) for each in ("1.50", "-2.00", "0.01", "0.02", "2.00")],
        "name": ["b", "B", "", "it's", "a%", "abc", "a\nb", "\u00e9", "'"],
        "Day": [day + each for each in near],
        "at": [(hour + each).replace(tzinfo=dt.UTC) for each in near],
        "local": [hour + each for each in near],
        "ok": [True, False],
        "odd name": [0, 1, 2],
        "s": [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 2, "b": None}],
        "items": [[], [1], [1, None, 2]],
    }
    columns = {
        name: [draw.choice([*values, None]) for _ in range(count)] for name, values in known.items()
    }
    return pa.table({name: pa.array(columns[name], kind) for name, kind in FIELDS})


class Queries:
    """Draws queries; `one` and `two` are what tables are called in the text."""

    def __init__(self, seed, one, two):
        self.draw = random.Random(seed)
        self.tables = (one, two)

    def settings(self):
        return {name: self.draw.choice(values) for name, values in SETTINGS.items()}

    def comparison(self, alias):
        draw = self.draw
        name = draw.choice(list(CONSTANTS))
        column = self.named(alias, name)
        constants = [self.constant(alias, each) for each in CONSTANTS[name]]
        match draw.randrange(10):
            case 0:
                return f"{column} IS {draw.choice(['', 'NOT '])}NULL"
            case 1:
                few = ", ".join(draw.sample(constants, min(len(constants), 2)))
                return f"{column} {draw.choice(['', 'NOT '])}IN ({few})"
            case 2:
                return f"{column} BETWEEN {draw.choice(constants)} AND {draw.choice(constants)}"
            case 3:
                text = self.named(alias, "name")
                pattern = draw.choice(["a%", "%b", "%'%'", "%", "b", "a_c", "a%b", "A%"])
                pattern = pattern.replace("'", "''")
                return f"{text} {draw.choice(['', 'NOT '])}LIKE '{pattern}'"
            case 4:
                return draw.choice([self.named(alias, "ok"), f"{self.named(alias, 'ok')} IS TRUE"])
        sign = draw.choice(["=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "=="])
        both = [column, draw.choice(constants)]
        if draw.random() < 0.2:
            both.reverse()
        return f" {sign} ".join(both)

    def constant(self, alias, text):
        return self.named(alias, text) if text in {"id", "n", "tiny", "f"} else text

    def named(self, alias, name):
        if self.draw.random() < 0.2 and "`" not in name:
            name = name.upper()
        return f"{alias}.{name}" if alias else name

    def condition(self, aliases, depth=2):
        draw = self.draw
        if not depth or draw.random() < 0.3:
            return self.comparison(draw.choice(aliases))
        match draw.randrange(4):
            case 0:
                return f"NOT ({self.condition(aliases, depth - 1)})"
            case 1:
                parts = [self.condition(aliases, depth - 1) for _ in range(2)]
                return f"({parts[0]}) OR {parts[1]}"
        parts = [self.condition(aliases, depth - 1) for _ in range(2)]
        return f"({parts[0]}) AND ({parts[1]})"

    def query(self):
        draw = self.draw
        one, two = self.tables
        match draw.randrange(8):
            case 0 | 1:
                stars = draw.choice(["*", "id, name, S", "`odd name` AS q, x, items", "1"])
                return f"SELECT {stars} FROM {one} WHERE {self.condition([''])}"
            case 2 | 3:
                return self.grouped()
            case 4 | 5:
                return self.joined()
            case 6:
                inner = f"SELECT id FROM {two} b WHERE {self.condition(['b'])}"
                negated = draw.choice(["", "NOT "])
                test = draw.choice(
                    [f"a.id {negated}IN ({inner})", f"{negated}EXISTS ({inner} AND a.n = b.n)"]
                )
                return f"SELECT a.id, a.f FROM {one} a WHERE {test} AND {self.condition(['a'])}"
        inner = f"SELECT n, x, ok FROM {one} WHERE {self.condition([''])}"
        return (
            f"WITH c AS ({inner}) SELECT c.*, d.n AS m FROM c JOIN c d ON c.n = d.n "
            f"UNION ALL SELECT n, x, ok, id FROM {two} WHERE {self.condition([''])}"
        )

    def joined(self):
        draw = self.draw
        one, two = self.tables
        kind = draw.choice(["", "LEFT ", "RIGHT ", "FULL ", "LEFT SEMI ", "LEFT ANTI "])
        on = f"a.n = b.n AND {self.condition(['a', 'b'], 1)}"
        is_half = "SEMI" in kind or "ANTI" in kind
        shown = "a.id, a.name" if is_half else "a.id, b.id, a.price, b.Day"
        where = self.condition(["a"] if is_half else ["a", "b"])
        return f"SELECT {shown} FROM {one} a {kind}JOIN {two} b ON {on} WHERE {where}"

    def grouped(self):
        draw = self.draw
        one, _ = self.tables
        keys = draw.sample(["n", "tiny", "ok", "Day", "name", "price", "at"], draw.randrange(3))
        makers = [
            lambda: "count(*)",
            lambda: f"count({draw.choice(['x', 'name', 's'])})",
            lambda: f"sum({draw.choice(NUMBERS)})",
            lambda: f"avg({draw.choice(NUMBERS)})",
            lambda: f"{draw.choice(['min', 'max'])}({draw.choice(ORDERED)})",
            lambda: f"sum(price * {draw.choice(['n', '(1 - price)', '2', 'tiny'])})",
            lambda: f"count(DISTINCT {draw.choice(['name', 'n', 'Day'])})",
            lambda: f"sum(n) FILTER (WHERE {self.comparison('')})",
        ]
        shown = [draw.choice(makers)() for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.3:
            shown[0] = (
                f"{shown[0]} + 1" if "min" not in shown[0] and "max" not in shown[0] else shown[0]
            )
        text = f"SELECT {', '.join([*keys, *shown])} FROM {one}"
        if draw.random() < 0.6:
            text += f" WHERE {self.condition([''])}"
        if keys:
            text += f" GROUP BY {', '.join(keys)}"
            if draw.random() < 0.3:
                text += " HAVING count(*) > 1"
        return text

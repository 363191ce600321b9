"""Filters, deletes and updates give the same rows with and without an index, for every kind.

A seed makes random values, builds one index on them and changes the table step by step. After each
step random predicates are compared with a scan, and predicates on texts also with Python's own
regular expressions, so that a defect that scans share is found too. Copies of the table then delete
and update by the same predicates.
"""

import json
import random
import re
import shutil

import pyarrow as pa
import pytest
import shapely

import lancelet
from lancelet.index.registry import SCALAR_KINDS
from lancelet.indices import IndexConfig

LETTERS = ("a", "b", "c", "%", "_", "\\", " ", "7", "A", "é", "e\u0301", "ß", "İ", "Σ", "\0")
RARE = ("\n", "😀", "\U0010ffff", "\ud7ff", "日本", "ﬁ")
COMMON = ("abc", "ab c", "abcab", "", "a", "zabc%_")
TARGETS = ("btree", "bitmap", "zonemap", "ngram")
KINDS = (*(kind.name for kind in SCALAR_KINDS if kind.name != "JSON"), *TARGETS)
SQUARE = "st_geomfromtext('POLYGON (({0} {0}, {1} {0}, {1} {1}, {0} {1}, {0} {0}))')"
STEPS = ("append", "delete", "update", "compact", "defer", "extend", "merge", "retrain")


def random_text(rng, most=7):
    if rng.random() < 0.3:
        return rng.choice(COMMON)
    pool = LETTERS if rng.random() < 0.8 else LETTERS + RARE
    return "".join(rng.choice(pool) for _ in range(rng.randrange(most)))


def random_pattern(rng):
    """Return a LIKE pattern and its escape character."""
    escape = rng.choice("\\\\!|")
    pieces = [
        "%",
        "%",
        "_",
        "a",
        "b",
        "ab",
        "abc",
        "é",
        " ",
        f"{escape}%",
        f"{escape}_",
        escape * 2,
    ]
    pattern = "".join(rng.choice(pieces) for _ in range(rng.randrange(6)))
    return rng.choice((pattern, f"%{random_text(rng)}%", f"{random_text(rng)}%")), escape


def expression_of(pattern, escape):
    """Return the regular expression that matches the same texts as a LIKE pattern."""
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character, re.escape(character)))
    return re.compile("".join(parts), re.DOTALL)


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def text_predicate(column, rng):
    """Return a predicate on texts, and the function of a value that is not null."""
    part = random_text(rng, 4)
    match rng.randrange(11):
        case 0 | 1 | 2 | 3:
            pattern, escape = random_pattern(rng)
            matches = expression_of(pattern, escape).fullmatch
            return f"{column} LIKE {quoted(pattern)} ESCAPE '{escape}'", matches
        case 4:
            return f"starts_with({column}, {quoted(part)})", lambda value: value.startswith(part)
        case 5:
            return f"ends_with({column}, {quoted(part)})", lambda value: value.endswith(part)
        case 6:
            return f"contains({column}, {quoted(part)})", lambda value: part in value
        case 7:
            expression = rng.choice(("^ab", "b$", "a.*c", "[aé]b", "^$"))
            search = re.compile(expression.replace("$", r"\Z")).search
            return f"regexp_like({column}, '{expression}')", search
        case 8:
            return f"{column} = {quoted(part)}", lambda value: value == part
        case 9:
            some = [random_text(rng, 3) for _ in range(3)]
            return f"{column} IN ({', '.join(map(quoted, some))})", lambda value: value in some
        case _:
            pattern, escape = random_pattern(rng)
            return f"{column} ILIKE {quoted(pattern)} ESCAPE '{escape}'", None


def list_predicate(column, rng):
    some = [random_text(rng, 3) for _ in range(rng.randrange(1, 4))]
    listed = ", ".join(map(quoted, some))
    return rng.choice(
        (
            (f"array_has({column}, {quoted(some[0])})", lambda value: some[0] in value),
            (f"array_has_any({column}, [{listed}])", None),
            (f"array_has_all({column}, [{listed}])", None),
            (f"array_length({column}) > 1", None),
        )
    )


def place_predicate(column, rng):
    low = rng.randrange(9)
    area = SQUARE.format(low, low + rng.randrange(1, 6))
    function = rng.choice(("st_intersects", "st_within", "st_contains", "st_touches"))
    return rng.choice(
        (
            (f"{function}({column}, {area})", None),
            (f"{function}({area}, {column})", None),
            (f"st_distance({column}, {area}) <= {rng.randrange(4)}.5", None),
        )
    )


class Column:
    """An indexed column: its values, its predicates and its index."""

    def __init__(self, kind):
        self.kind = kind
        self.name, self.field, self.predicate = "v", pa.field("v", pa.string()), text_predicate
        if kind == "LABEL_LIST":
            self.field, self.predicate = pa.field("v", pa.list_(pa.string())), list_predicate
        if kind == "RTREE":
            extension = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": "{}"}
            self.field, self.predicate = (
                pa.field("v", pa.binary(), metadata=extension),
                place_predicate,
            )
        if kind in TARGETS:
            self.name, self.field = "json_get_string(v, 'x')", pa.field("v", pa.json_())

    def rows(self, first, count, rng):
        values = [None if rng.random() < 0.15 else self.value(rng) for _ in range(count)]
        schema = pa.schema([pa.field("id", pa.int64()), self.field])
        return pa.table(
            [pa.array(range(first, first + count)), pa.array(values, self.field.type)],
            schema=schema,
        )

    def value(self, rng):
        if self.kind == "LABEL_LIST":
            return [random_text(rng, 3) for _ in range(rng.randrange(4))]
        if self.kind == "RTREE":
            corner, size = rng.randrange(10), rng.choice((0, 1, 3))
            return shapely.to_wkb(
                shapely.box(corner, 3, corner + size, 3 + size)
                if size
                else shapely.Point(corner, 4)
            )
        text = random_text(rng)
        return json.dumps({"x": text}) if self.kind in TARGETS else text

    def create_index(self, dataset):
        asked = self.kind
        if self.kind in TARGETS:
            asked = IndexConfig("json", {"target_index_type": self.kind, "path": "x"})
        if self.kind == "MINHASHLSH":
            asked = IndexConfig("minhashlsh", {})
        dataset.create_scalar_index("v", asked)


def condition(column, rng):
    """Return a condition and a model of it for values that are not null, if there is one."""
    text, model = column.predicate(column.name, rng)
    match rng.randrange(8):
        case 0:
            return f"NOT ({text})", model and (lambda value: not model(value))
        case 1:
            other, _ = column.predicate(column.name, rng)
            return f"{text} {rng.choice(('AND', 'OR'))} NOT ({other})", None
        case 2:
            return f"{text} AND {column.name} IS NOT NULL", model
        case 3:
            return f"({text}) OR {column.name} IS NULL", None
        case _:
            return text, model


def ids(dataset, condition=None, **options):
    return sorted(dataset.to_table(columns=["id"], filter=condition, **options)["id"].to_pylist())


def change(dataset, step, column, rng, next_id):
    match step:
        case "append":
            dataset.insert(column.rows(next_id, 25, rng), max_rows_per_file=15)
        case "delete":
            dataset.delete(f"id % 7 = {rng.randrange(7)}")
        case "update":
            source = column.rows(0, next_id, rng).filter(
                pa.array(rng.random() < 0.2 for _ in range(next_id))
            )
            dataset.merge_insert("id").when_matched_update_all().execute(source)
        case "compact" | "defer":
            deferred = step == "defer" and not dataset.has_stable_row_ids and column.kind != "FM"
            dataset.optimize.compact_files(target_rows_per_fragment=60, defer_index_remap=deferred)
        case "extend" | "merge":
            dataset.optimize.optimize_indices(num_indices_to_merge=int(step == "merge"))
        case "retrain":
            dataset.optimize.optimize_indices(retrain=True)


def check(dataset, column, rng, facts, folder):
    values = dict(
        zip(
            *(dataset.to_table(columns=["id", "v"])[name].to_pylist() for name in ("id", "v")),
            strict=True,
        )
    )
    if column.kind in TARGETS:
        values = {key: value and json.loads(value)["x"] for key, value in values.items()}
    for number in range(12):
        text, model = condition(column, rng)
        scanned = ids(dataset, text, use_scalar_index=False)
        if model is not None:
            matching = [key for key, value in values.items() if value is not None and model(value)]
            assert scanned == sorted(matching), ("scan", text, facts)
        assert ids(dataset, text) == scanned, (text, facts)
        assert dataset.count_rows(text) == len(scanned), (text, facts)
        if number < 2:
            copy = folder / f"{dataset.version}-{number}"
            shutil.copytree(dataset.uri, copy)
            changed = lancelet.dataset(copy)
            if number:
                assert changed.delete(text)["num_deleted_rows"] == len(scanned), (text, facts)
                assert ids(changed) == sorted(values.keys() - set(scanned)), (text, facts)
            else:
                changed.update({"id": "id + 100000"}, where=text)
                assert ids(changed, "id >= 100000") == [each + 100000 for each in scanned], (
                    text,
                    facts,
                )
                assert changed.count_rows() == len(values), (text, facts)
            shutil.rmtree(copy)


def live_through(folder, kind, seed):
    rng = random.Random(f"{kind} {seed}")
    column, next_id = Column(kind), 70
    stable = rng.random() < 0.4 and kind != "zonemap"
    dataset = lancelet.write_dataset(
        column.rows(0, next_id, rng),
        folder / "t.lance",
        max_rows_per_file=30,
        enable_stable_row_ids=stable,
    )
    column.create_index(dataset)
    steps = []
    for step in ("", *rng.choices(STEPS, k=3), "compact", "merge"):
        steps.append(step)
        change(dataset, step, column, rng, next_id)
        next_id += 25 * (step == "append")
        check(dataset, column, rng, (kind, seed, stable, steps), folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(1))
def test_an_index_never_changes_which_rows_match(tmp_path, kind, seed):
    live_through(tmp_path, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(1, 60))
def test_an_index_never_changes_which_rows_match_in_many_lives(tmp_path, kind, seed):
    live_through(tmp_path, kind, seed)

"""Indices that tasks build are used by scans, searches and functions of SQL in a session."""

import shutil
from functools import partial

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import lancelet
from lancelet import spark as ls
from lancelet.errors import LanceletError
from lancelet.jobs.split import plan_splits
from lancelet.query import PhraseQuery
from lancelet.spark import arrow_tasks
from lancelet.spark.sql import search_calls

ROWS, DIMENSION = 900, 8
WORDS = ("fox", "dog", "river", "stone", "hill")


def rows():
    random = np.random.default_rng(5)
    vectors = random.standard_normal((ROWS, DIMENSION)).astype(np.float32)
    return pa.table(
        {
            "id": range(ROWS),
            "text": [" ".join(random.choice(WORDS, 3)) for _ in range(ROWS)],
            "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSION),
        }
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory, spark):
    path = str(tmp_path_factory.mktemp("search") / "t.lance")
    lance.write_dataset(rows(), path, max_rows_per_file=300)
    small = {"spark": spark, "bytes_per_task": 1}
    ls.create_index(path, "id", "BTREE", **small)
    ls.create_index(path, "text", "INVERTED", parameters={"with_position": True}, **small)
    done = ls.create_index(
        path, "v", "IVF_FLAT", parameters={"num_partitions": 2}, merge=True, **small
    )
    assert done.num_rows == ROWS
    assert [phase.name for phase in done.report.phases] == ["train", "build", "merge"]
    return path


@pytest.fixture(scope="module")
def registered(spark):
    ls.register(spark)
    return spark


def vector(number):
    return np.array(rows()["v"][number].as_py(), np.float32)


def test_the_reference_uses_what_tasks_built(uri):
    ds = lance.dataset(uri)
    found = {each.name: len(each.segments) for each in ds.describe_indices()}
    assert found == {"id_idx": 3, "text_idx": 3, "v_idx": 1}
    assert ds.to_table(["id"], filter="id = 700")["id"].to_pylist() == [700]
    wish = {"column": "v", "q": vector(7), "k": 1, "nprobes": 2}
    assert ds.to_table(["id", "_distance"], nearest=wish)["id"].to_pylist() == [7]


def test_new_rows_are_indexed_in_tasks(tmp_path, spark):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows().select(["id"]), path)
    ls.create_index(path, "id", "BTREE", spark=spark)
    lancelet.write_dataset(pa.table({"id": range(ROWS, ROWS + 10)}), path, mode="append")
    done = ls.optimize_indices(path, spark=spark)
    assert (done.version, done.report.phases[0].tasks) == (4, 1)
    assert lancelet.dataset(path).stats.index_stats("id_idx")["num_unindexed_rows"] == 0


def test_filters_of_scans_and_of_the_format_go_through_the_index(uri, spark, tmp_path):
    """The files with the rows are gone, so only the index can say which rows these are."""
    bare = shutil.copytree(uri, tmp_path / "bare.lance")
    for each in (bare / "data").iterdir():
        each.unlink()
    options = {"filter": "id between 100 and 160", "columns": "_rowid"}
    frame = spark.read.format("lance").options(**options).load(str(bare))
    assert sorted(row._rowid for row in frame.collect()) == list(range(100, 161))
    assert ls.scan(spark, bare, columns=["_rowid"], filter=options["filter"]).count() == 61
    assert ls.count(bare, filter=options["filter"], spark=spark) == 61


@pytest.mark.parametrize("as_frame", [False, True], ids=["matrix", "frame"])
def test_many_queries_are_spread_over_tasks(uri, spark, as_frame):
    wanted = list(range(0, ROWS, 90))
    options = {"column": "v", "columns": ["id", "_distance"], "nearest": {"nprobes": 2}}
    matrix = np.stack([vector(number) for number in wanted])
    if as_frame:
        queries = pa.table({"name": [f"q{n}" for n in wanted], "v": list(map(list, matrix))})
        found = ls.search(spark, uri, spark.createDataFrame(queries).repartition(3), 3, **options)
        assert found.columns == ["name", "id", "_distance"]
        numbers = {f"q{number}": number for number in wanted}
    else:
        found = ls.search(spark, uri, matrix, 3, queries_per_task=4, **options)
        assert found.columns == ["query_index", "id", "_distance"]
        numbers = dict(enumerate(wanted))
    groups = {}
    for key, row_id, distance in found.collect():
        groups.setdefault(key, []).append((row_id, distance))
    assert groups.keys() == numbers.keys()
    for key, number in numbers.items():
        wish = {"column": "v", "q": vector(number), "k": 3, "use_index": False}
        exact = lance.dataset(uri).to_table(["id", "_distance"], nearest=wish)
        assert [row_id for row_id, _ in groups[key]] == exact["id"].to_pylist()
        assert [distance for _, distance in groups[key]] == pytest.approx(
            exact["_distance"].to_pylist(), abs=1e-5
        )


def test_queries_that_mean_nothing_are_rejected(uri, spark):
    queries = spark.createDataFrame(pa.table({"id": [1], "v": [[0.0] * DIMENSION]}))
    with pytest.raises(LanceletError, match="same name"):
        ls.search(spark, uri, queries, column="v")
    with pytest.raises(LanceletError, match="do not have the query column"):
        ls.search(spark, uri, spark.range(3), column="v")
    with pytest.raises(LanceletError):
        ls.search(spark, uri, [[0.0] * DIMENSION], column="text")


@pytest.mark.parametrize("as_frame", [False, True], ids=["matrices", "frame"])
def test_rows_of_many_vectors_are_found_by_queries_of_many(spark, tmp_path, as_frame):
    path = str(tmp_path / "t.lance")
    random = np.random.default_rng(3)
    lists = [random.standard_normal((1 + n % 3, 4)).astype(np.float32) for n in range(60)]
    kind = pa.list_(pa.list_(pa.float32(), 4))
    rows = pa.table({"id": range(60), "v": pa.array([each.tolist() for each in lists], kind)})
    lance.write_dataset(rows, path, max_rows_per_file=20)
    asked = {n: random.standard_normal((1 + n % 2, 4)).astype(np.float32) for n in range(5)}
    options = {"column": "v", "columns": ["id", "_distance"], "nearest": {"metric": "cosine"}}
    if as_frame:
        pairs = [(n, query.tolist()) for n, query in asked.items()]
        queries = spark.createDataFrame([*pairs, (9, None)], "n int, v array<array<float>>")
    else:
        queries = list(asked.values())
    found = ls.search(spark, path, queries, 4, queries_per_task=2, **options).collect()
    for number, query in asked.items():
        wish = {"column": "v", "q": query, "k": 4, "metric": "cosine"}
        expected = lance.dataset(path).to_table(["id", "_distance"], nearest=wish)
        own = [row for row in found if row[0] == number]
        assert [row.id for row in own] == expected["id"].to_pylist()
        scores = [row._distance for row in own]
        assert scores == pytest.approx(expected["_distance"].to_pylist(), abs=1e-5)
    assert len(found) == 4 * len(asked)
    alone = ls.search(spark, path, asked[1], 4, **options).collect()
    assert [row.id for row in alone] == [row.id for row in found if row[0] == 1]


@pytest.mark.parametrize("as_frame", [False, True], ids=["list", "frame"])
def test_many_texts_are_spread_over_tasks(uri, spark, as_frame):
    texts = ["fox river", "stone", "hill dog fox", "unheard", "dog"]
    options = {"columns": ["id", "_score"], "filter": "id % 2 = 0", "queries_per_task": 2}
    if as_frame:
        queries = spark.createDataFrame([(text,) for text in [*texts, None]], "query string")
        found = ls.search_text(spark, uri, queries.repartition(3), 700, **options)
        assert found.columns == ["id", "_score"]
        assert found.count() == sum(len(of_reference(uri, text)) for text in texts)
        named = queries.selectExpr("query as name", "query")
        rows = ls.search_text(spark, uri, named, 700, **options).collect()
        keys = {text: text for text in texts}
    else:
        phrase = PhraseQuery("fox river", "text")
        rows = ls.search_text(spark, uri, [*texts, phrase], 700, **options).collect()
        found = sorted(row.id for row in rows if row.query_index == len(texts))
        assert found == of_phrase(uri)
        keys = {text: number for number, text in enumerate(texts)}
    for text, key in keys.items():
        own = {row.id: row._score for row in rows if row[0] == key}
        assert own == pytest.approx(of_reference(uri, text), rel=1e-5)


def test_the_best_texts_of_each_query_come_first(uri, spark):
    rows = ls.search_text(spark, uri, ["fox", "dog river"], 5, on=["text"]).collect()
    assert [row.query_index for row in rows] == [0] * 5 + [1] * 5
    best = lance.dataset(uri).to_table(["_score"], full_text_query="dog river", limit=5)["_score"]
    assert [row._score for row in rows[5:]] == pytest.approx(best.to_pylist(), rel=1e-5)
    assert set(rows[0].asDict()) == {"query_index", "id", "text", "v", "_score"}
    with pytest.raises(LanceletError, match="at least"):
        ls.search_text(spark, uri, "fox", 0)
    with pytest.raises(LanceletError):
        ls.search_text(spark, uri, "fox", on=["id"])


def of_reference(uri, words):
    found = lance.dataset(uri).to_table(["id", "_score"], "id % 2 = 0", full_text_query=words)
    return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))


def of_phrase(uri):
    texts = lance.dataset(uri).to_table(["id", "text"], "id % 2 = 0").to_pylist()
    return [row["id"] for row in texts if "fox river" in row["text"]]


def array(values):
    return f"array({', '.join(f'{value:.8f}' for value in values)})"


def test_sql_searches_by_vector(uri, registered):
    found = registered.sql(
        f"SELECT id, _distance FROM lance_vector_search(path => '{uri}', column => 'v', "
        f"query => {array(vector(33))}, k => 4, nprobes => 2, filter => 'id % 3 = 0')"
    ).collect()
    wish = {"column": "v", "q": vector(33), "k": 4, "use_index": False}
    exact = lance.dataset(uri).to_table(
        ["id", "_distance"], nearest=wish, filter="id % 3 = 0", prefilter=True
    )
    assert [row.id for row in found] == exact["id"].to_pylist()


def test_sql_searches_by_text(uri, registered):
    found = registered.sql(
        f"SELECT * FROM lance_text_search(path => '{uri}', query => 'fox river', on => 'text', "
        "k => 6, columns => 'id, text', with_row_id => true)"
    )
    assert found.columns == ["id", "text", "_rowid", "_score"]
    scores = [row._score for row in found.collect()]
    expected = lance.dataset(uri).to_table(["id", "_score"], full_text_query="fox river", limit=6)[
        "_score"
    ]
    assert scores == pytest.approx(expected.to_pylist(), rel=1e-5)


def test_sql_searches_by_both(uri, registered):
    found = registered.sql(
        "SELECT id, _relevance_score AS score FROM lance_hybrid_search("
        f"path => '{uri}', text => 'fox', column => 'v', query => {array(vector(3))}, k => 5, "
        "fusion => 'weighted_sum', text_weight => 0.25, vector_weight => 0.75)"
    ).collect()
    same = lancelet.dataset(uri).hybrid_search(
        "fox",
        {"column": "v", "q": vector(3)},
        5,
        fusion=lancelet.query.WeightedSum((0.25, 0.75)),
    )
    assert [row.id for row in found] == same["id"].to_pylist()
    assert [row.score for row in found] == pytest.approx(same["_relevance_score"].to_pylist())


@pytest.mark.parametrize(
    "call",
    [
        "lance_vector_search(path => '{}', column => 'v', query => array(0.5), k => 3)",
        "lance_vector_search(path => '{}', column => 'v', query => array(0.5), limit => 3)",
        "lance_text_search(path => '{}', query => 'fox', k => 0)",
        "lance_hybrid_search(path => '{}', text => 'a', column => 'v', query => array(1.0))",
    ],
)
def test_functions_explain_errors(uri, registered, call):
    with pytest.raises(PySparkException, match="lancelet"):
        registered.sql(f"SELECT * FROM {call.format(uri)}").collect()


def test_a_search_of_a_statement_is_many_tasks(spark, tmp_path, monkeypatch):
    uri = str(tmp_path / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(
        np.random.default_rng(3).normal(size=4000).astype(np.float32), 4
    )
    rows = pa.table({"id": range(1000), "v": vectors})
    lance.write_dataset(rows, uri, max_rows_per_file=200)
    monkeypatch.setattr(search_calls, "plan_splits", partial(plan_splits, split_bytes=1))
    counts = []

    def counted(spark, make, tasks, schema):
        counts.append(len(tasks))
        return arrow_tasks.task_frame(spark, make, tasks, schema)

    monkeypatch.setattr(search_calls, "task_frame", counted)
    call = f"lance_vector_search('{uri}', 'v', array(0.1, -0.2, 0, 1), columns => 'id', k => :k)"
    text = f"SELECT s.id, _distance FROM {call} AS s JOIN {{names}} n ON s.id = n.id"
    names = spark.range(1000)
    found = ls.sql(spark, text, k=7, names=names).collect()
    assert counts == [5]
    ls.register(spark)
    wanted = spark.sql(text, {"k": 7}, names=names).collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))
    made = ls.sql(spark, f"SELECT * FROM {call}", k=3)
    assert made.columns == ["id", "_distance"]
    assert counts == [5, 5]
    # What is no constant is left to the function, which says so.
    with pytest.raises(Exception, match="constant"):
        ls.sql(spark, f"SELECT * FROM range(2) r, LATERAL {call.replace(':k', 'r.id')}").collect()


@pytest.fixture
def texts(tmp_path):
    """Nine fragments with texts and vectors; the index of one text has four, of the other two."""
    draw = np.random.default_rng(5)
    words = np.array(["red", "fox", "blue", "dog", "the", "sea"])
    rows = pa.table(
        {
            "id": range(900),
            "a": [" ".join(draw.choice(words, draw.integers(0, 9))) or None for _ in range(900)],
            "b": [" ".join(draw.choice(words[2:], 3)) for _ in range(900)],
            "v": pa.FixedSizeListArray.from_arrays(draw.normal(size=3600).astype(np.float32), 4),
        }
    )
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows[:200], uri, max_rows_per_file=100)
    dataset = lancelet.dataset(uri)
    dataset.create_scalar_index("b", "INVERTED")
    dataset = lancelet.write_dataset(rows[200:400], uri, mode="append", max_rows_per_file=100)
    dataset.create_scalar_index("a", "INVERTED", with_position=True)
    dataset = lancelet.write_dataset(rows[400:], uri, mode="append", max_rows_per_file=100)
    dataset.delete("id % 7 = 0")
    return uri


HYBRID = (
    "lance_hybrid_search(path => '{}', text => 'red sea', on => 'a', column => 'v', "
    "query => array(0.1, -0.2, 0, 1), k => 20, filter => 'id > 50', columns => 'id,b')"
)


@pytest.mark.parametrize(
    ("call", "tasks"),
    [
        ("lance_text_search('{}', 'blue sea', on => 'a, b', k => 40)", 8),
        ("lance_text_search('{}', 'dog', on => 'a', fast_search => true, k => 30)", None),
        (HYBRID, 6),
    ],
)
def test_rows_that_a_text_index_lacks_are_searched_by_many_tasks(
    spark, registered, texts, monkeypatch, call, tasks
):
    monkeypatch.setattr(search_calls, "plan_splits", partial(plan_splits, split_bytes=1))
    counts = []

    def counted(spark, make, tasks, schema):
        counts.append(len(tasks))
        return arrow_tasks.task_frame(spark, make, tasks, schema)

    monkeypatch.setattr(search_calls, "task_frame", counted)
    text = f"SELECT * FROM {call.format(texts)}"
    found = ls.sql(spark, text)
    assert counts[:1] == ([] if tasks is None else [tasks])
    wanted = registered.sql(text)
    assert found.schema == wanted.schema
    rows = found.collect()
    assert rows == wanted.collect()
    assert rows

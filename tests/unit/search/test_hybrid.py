"""Rankings are combined by their formulas, as are searches by text and vector."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.query import ReciprocalRank, WeightedSum
from lancelet.search.fusion import Ranking, fuse

WORDS = ("fox", "dog", "river", "stone")
rankings = st.dictionaries(st.integers(0, 30), st.integers(-9, 9), max_size=12).map(
    lambda scores: sorted(scores.items(), key=lambda row: (-row[1], row[0]))
)


def ranking(rows):
    return Ranking(
        np.array([row for row, _ in rows], np.uint64), np.array([s for _, s in rows], float)
    )


def by_hand(lists, worth):
    found = {}
    for number, rows in enumerate(lists):
        for place, (row, score) in enumerate(rows):
            found[row] = found.get(row, 0.0) + worth(number, place, score, rows)
    return found


@given(st.tuples(rankings, rankings))
def test_reciprocal_ranks_are_those_of_the_formula(lists):
    fusion = ReciprocalRank((2.0, 0.5), constant=7)
    fused = fuse([ranking(rows) for rows in lists], fusion)
    expected = by_hand(lists, lambda i, place, *_: fusion.weights[i] / (7 + place + 1))
    assert dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True)) == pytest.approx(
        expected
    )
    order = list(zip(-fused.scores, fused.rows, strict=True))
    assert order == sorted(order)


@given(st.tuples(rankings, rankings))
def test_the_weighted_sum_stretches_scores(lists):
    fusion = WeightedSum((0.3, 0.7))

    def worth(number, _, score, rows):
        best, worst = rows[0][1], rows[-1][1]
        return fusion.weights[number] * ((score - worst) / (best - worst) if best > worst else 1)

    fused = fuse([ranking(rows) for rows in lists], fusion)
    assert dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True)) == pytest.approx(
        by_hand(lists, worth)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReciprocalRank(constant=-1),
        lambda: ReciprocalRank((0.0, 0.0)),
        lambda: WeightedSum((1.0, -1.0)),
        lambda: WeightedSum((1.0, float("nan"))),
        lambda: fuse([ranking([])], ReciprocalRank()),
    ],
)
def test_numbers_that_mean_nothing_are_rejected(make):
    with pytest.raises(InvalidInputError):
        make()


@pytest.fixture(params=[False, True], ids=["scanned", "indexed"])
def dataset(tmp_path, request):
    random = np.random.default_rng(1)
    vectors = random.standard_normal((400, 8)).astype(np.float32)
    texts = [" ".join(random.choice(WORDS, 3)) for _ in range(400)]
    rows = {
        "id": range(400),
        "text": texts,
        "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8),
    }
    ds = lancelet.write_dataset(pa.table(rows), tmp_path / "t", max_rows_per_file=150)
    if request.param:
        ds.create_scalar_index("text", "INVERTED")
        ds.create_index("v", "IVF_FLAT", num_partitions=1)
    return ds


def query(dataset):
    return dataset.take([17], columns=["v"])["v"][0].as_py()


@pytest.mark.parametrize("fusion", [ReciprocalRank(), WeightedSum((0.2, 0.8))])
@pytest.mark.parametrize("where", [None, "id % 3 = 0"])
def test_both_searches_are_put_together(dataset, fusion, where):
    options = {"filter": where, "prefilter": True}
    near = {"column": "v", "q": query(dataset), "k": 30}
    words = {"query": "fox", "columns": ["text"]}
    text = dataset.to_table(["id", "_score"], full_text_query=words, limit=30, **options)
    vector = dataset.to_table(["id", "_distance"], nearest=near, **options)
    lists = [(text["id"], text["_score"].to_numpy())]
    lists.append((vector["id"], -vector["_distance"].to_numpy()))
    expected = fuse(
        [Ranking(ids.to_numpy().astype(np.uint64), own.astype(float)) for ids, own in lists],
        fusion,
    )
    found = dataset.hybrid_search(
        words, near, 12, columns=["id"], fusion=fusion, depth=30, **options
    )
    assert found.schema.names == ["id", "_relevance_score"]
    assert found["id"].to_pylist() == expected.rows[:12].tolist()
    assert found["_relevance_score"].to_numpy() == pytest.approx(expected.scores[:12], rel=1e-6)


def test_results_are_filtered_after_the_search(dataset):
    near = {"column": "v", "q": query(dataset)}
    words = {"query": "fox", "columns": ["text"]}
    every = dataset.hybrid_search(words, near, 50, columns=["id"])["id"].to_pylist()
    found = dataset.hybrid_search(
        words, near, 50, columns=["id"], filter="id < 200", prefilter=False
    )["id"].to_pylist()
    assert found[: len(every) // 4] == [each for each in every if each < 200][: len(every) // 4]


def test_a_search_for_nothing_is_rejected(dataset):
    near = {"column": "v", "q": query(dataset)}
    for options in ({"k": 0}, {"k": 10, "depth": 9}):
        with pytest.raises(InvalidInputError):
            dataset.hybrid_search({"query": "fox", "columns": ["text"]}, near, **options)

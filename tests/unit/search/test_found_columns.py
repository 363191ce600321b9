"""Filters and orders by columns that a search adds: distances and scores.

A filter keeps the rows of the unfiltered result for which it is true. An order does not depend on
whether its column is returned. Results equal those of the reference.
"""

import lance as reference
import numpy as np
import pyarrow as pa
import pytest

import lancelet

QUERY = np.zeros(4, np.float32)
NEAREST = {"column": "v", "q": QUERY, "k": 20}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    random = np.random.default_rng(5)
    column = pa.FixedSizeListArray.from_arrays(random.normal(size=400).astype(np.float32), 4)
    words = random.choice(["red", "fox", "dog"], (100, 4))
    table = pa.table(
        {"id": range(100), "k": random.integers(0, 5, 100), "v": column, "s": map(" ".join, words)}
    )
    path = str(tmp_path_factory.mktemp("found") / "table.lance")
    dataset = lancelet.write_dataset(table, path, max_rows_per_file=30)
    dataset.create_scalar_index("s", "INVERTED")
    return path


def searches(module):
    return {
        "_distance": {"nearest": NEAREST},
        "_score": {"full_text_query": module.query.MatchQuery("fox dog", "s")},
    }


@pytest.mark.parametrize("score", ["_distance", "_score"])
@pytest.mark.parametrize("rest", ["", " AND k < 3", " AND _rowid < 50"])
def test_a_filter_of_results_may_use_scores(path, score, rest):
    ours, theirs = lancelet.dataset(path), reference.dataset(path)
    whole = ours.to_table(**searches(lancelet)[score], with_row_id=True)
    bound = float(np.median(whole[score])) + 1e-3  # as each rounds scores in its own way
    wanted = [
        row["id"]
        for row in whole.to_pylist()
        if row[score] < bound
        and (rest != " AND k < 3" or row["k"] < 3)
        and (rest != " AND _rowid < 50" or row["_rowid"] < 50)
    ]
    assert wanted
    text = f"{score} < {bound}{rest}"
    found = ours.to_table(**searches(lancelet)[score], filter=text, columns=["id"])
    assert sorted(found["id"].to_pylist()) == sorted(wanted)
    other = theirs.to_table(**searches(reference)[score], filter=text, columns=["id"])
    assert sorted(other["id"].to_pylist()) == sorted(wanted)


def test_a_filter_before_a_search_knows_no_scores(path):
    with pytest.raises(ValueError, match="No field named _distance"):
        lancelet.dataset(path).to_table(nearest=NEAREST, filter="_distance < 2", prefilter=True)


@pytest.mark.parametrize("score", ["_distance", "_score"])
def test_rows_are_sorted_by_columns_that_are_not_returned(path, score):
    ours, theirs = lancelet.dataset(path), reference.dataset(path)
    wanted = {"columns": ["id"], "order_by": ["k", "id"]}
    found = ours.to_table(**searches(lancelet)[score], **wanted)
    assert found.schema.names == ["id", score]
    whole = ours.to_table(**searches(lancelet)[score]).to_pylist()
    expected = [row["id"] for row in sorted(whole, key=lambda row: (row["k"], row["id"]))]
    assert found["id"].to_pylist() == expected
    other = theirs.to_table(**searches(reference)[score], **wanted)
    assert other["id"].to_pylist() == expected


def test_plans_show_what_is_done_first(path):
    dataset = lancelet.dataset(path)

    def lines(**options):
        return (
            dataset.scanner(nearest=NEAREST, filter="k = 3", **options).explain_plan().split("\n")
        )

    def place(steps, name):
        return next(number for number, step in enumerate(steps) if name in step)

    after, before = lines(), lines(prefilter=True)
    assert place(after, "Filter") < place(after, "KNNVectorDistance")
    assert place(before, "KNNVectorDistance") < place(before, "Filter")


@pytest.mark.parametrize(
    ("query", "numbers"),
    [(lancelet.query.MatchQuery, {"fuzziness": -1}), (lancelet.query.PhraseQuery, {"slop": -1})],
)
def test_numbers_below_zero_mean_nothing_in_a_query(query, numbers):
    with pytest.raises(ValueError, match="negative or too large"):
        query("fox", "s", **numbers)

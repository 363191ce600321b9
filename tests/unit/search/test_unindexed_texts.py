"""Unindexed texts are read in batches, and only statistics of the query terms are retained.

Results are the same for all batch sizes, and with and without cached tokens.
"""

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.query import (
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    MatchQuery,
    PhraseQuery,
)
from lancelet.search import text_column, text_parts

WORDS = np.array(["red", "fox", "dog", "cat", "owl", "elk", "", "!"])
QUERIES = (
    MatchQuery("fox", "t"),
    MatchQuery("red owl zebra", "t"),
    MatchQuery("fax", "t", fuzziness=1),
    MatchQuery("red dog", "t", operator=FullTextOperator.AND),
    PhraseQuery("dog cat", "t"),
    MatchQuery("fox", "t") & MatchQuery("red", "t"),
    MatchQuery("fox", "tags", document_granularity=DocumentGranularity.LIST_ELEMENT),
)


@pytest.fixture
def path(tmp_path):
    chance = np.random.default_rng(3)
    texts = [" ".join(chance.choice(WORDS, 6)) if place % 9 else None for place in range(80)]
    tags = [None if place % 7 == 0 else [texts[place], "a fox"] for place in range(80)]
    table = pa.table({"id": range(80), "t": texts, "tags": tags})
    dataset = lancelet.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=50)
    dataset.delete("id % 11 = 3")
    return str(tmp_path / "t.lance")


def answers(path, **options):
    dataset = lancelet.dataset(path)
    for query in QUERIES:
        found = dataset.to_table(columns=["id"], full_text_query=query, **options)
        yield sorted(map(str, found.to_pylist()))
        yield dataset.explain_score(query, 1)


@pytest.mark.parametrize("options", [{}, {"filter": "id > 30", "prefilter": True}], ids=str)
@pytest.mark.parametrize("together", [7, 40])
def test_results_do_not_depend_on_how_rows_are_read(path, options, together):
    whole = list(answers(path, **options))
    with (
        mock.patch.object(text_parts, "ROWS_TOGETHER", together),
        mock.patch.object(text_column, "_CACHED_ROWS_MAX", 0),
    ):
        assert list(answers(path, **options)) == whole


def test_columns_that_are_combined_keep_the_words_of_the_query(path):
    dataset = lancelet.dataset(path)
    dataset.create_scalar_index("t", "INVERTED")
    more = pa.table({"id": [900], "t": ["red fox"], "tags": [["red"]]})
    dataset = lancelet.write_dataset(more, path, mode="append")
    query = CombinedFieldsQuery("red fox", ["t", "tags"], operator=FullTextOperator.AND)
    whole = dataset.to_table(columns=["id"], full_text_query=query)
    with mock.patch.object(text_parts, "ROWS_TOGETHER", 3):
        again = lancelet.dataset(path).to_table(columns=["id"], full_text_query=query)
    assert again == whole
    assert 900 in whole["id"].to_pylist()


def test_only_tokens_of_the_query_stay_of_a_large_table(path):
    plan = lancelet.dataset(path).scanner()._plan
    target = text_column.target_of(plan.snapshot, "t")
    with mock.patch.object(text_column, "_CACHED_ROWS_MAX", 0):
        column = text_column.cached_text_column(plan, target, MatchQuery("Red foxy", "t"))
    (part,) = (part for group in column._groups for part in group.parts)
    assert part.partition.num_tokens == 1
    lengths = text_column.TextColumn(plan, target, None)._groups[-1].parts[0].partition.lengths
    assert part.partition.lengths.tolist() == lengths.tolist()

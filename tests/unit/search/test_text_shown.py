"""Highlights and explanations: matching terms are marked, and the explained parts sum to the score.

The tables are small, with and without an index, with several scripts and long texts.
"""

import pyarrow as pa
import pytest

import lancelet
from lancelet.query import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)

TEXTS = ["The red foxes run", "A red dog, a red Fox", None, "naïve Straße 漢字 fox", "nothing"]
QUERIES = (
    MatchQuery("fox red", "t", boost=2.0),
    MatchQuery("fxo", "t", fuzziness=2),
    PhraseQuery("red fox", "t"),
    BoostQuery(MatchQuery("fox", "t"), MatchQuery("dog", "t")),
    MultiMatchQuery("fox", ["t", "u"]),
    CombinedFieldsQuery("fox red", ["t", "u"]),
    BooleanQuery([(Occur.MUST, MatchQuery("fox", "t")), (Occur.MUST_NOT, MatchQuery("dog", "t"))]),
)


@pytest.fixture(params=["memory", "stable"])
def dataset(request, tmp_path):
    rows = pa.table({"t": TEXTS, "u": TEXTS[::-1]})
    stable = request.param == "stable"
    made = lancelet.write_dataset(rows, str(tmp_path / "a"), enable_stable_row_ids=stable)
    for column in ("t", "u"):
        made.create_scalar_index(column, "INVERTED", with_position=True)
    lancelet.write_dataset(rows, str(tmp_path / "a"), mode="append")
    return lancelet.dataset(str(tmp_path / "a"))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.query_type().value)
def test_scores_are_the_sums_that_are_shown(dataset, query):
    found = dataset.to_table(full_text_query=query, with_row_id=True)
    assert found.num_rows
    scores = dict(zip(found["_rowid"].to_pylist(), found["_score"].to_pylist(), strict=True))
    for row_id in dataset.to_table(with_row_id=True)["_rowid"].to_pylist():
        shown = dataset.explain_score(query, row_id)
        assert shown.score == scores.get(row_id)
        if shown.terms:
            assert sum(term.score for term in shown.terms) == pytest.approx(shown.score, rel=1e-6)
        if isinstance(query, BooleanQuery) and shown.score is not None:
            assert [part.score is None for part in shown.parts] == [False, True]


def test_tokens_in_snippets(dataset):
    (term,) = dataset.explain_score(MatchQuery("red", "t"), 1).terms
    assert (term.token, term.frequency, term.length, term.num_docs_with) == ("red", 2, 4, 2)


def test_words_are_marked_as_they_stand_in_the_text(dataset):
    assert dataset.highlight(MatchQuery("fox red", "t"), TEXTS) == [
        "The <b>red</b> <b>foxes</b> run",
        "A <b>red</b> dog, a <b>red</b> <b>Fox</b>",
        "",
        "naïve Straße 漢字 <b>fox</b>",
        "",
    ]
    strasse = MatchQuery("straße 漢字 naive", "t")
    (shown,) = dataset.highlight(strasse, TEXTS[3:4], before="[", after="]")
    assert shown == "[naïve] [Straße] [漢字] fox"


def test_the_part_with_most_words_is_shown_of_a_long_text(dataset):
    text = "fox " + "word " * 100 + "a red fox and a red dog " + "word " * 100
    (shown,) = dataset.highlight(MatchQuery("fox red dog", "t"), [text], max_chars=60)
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert "a <b>red</b> <b>fox</b> and a <b>red</b> <b>dog</b>" in shown
    assert len(shown.replace("<b>", "").replace("</b>", "")) <= 62


def test_words_that_must_not_be_there_are_not_marked(dataset):
    assert dataset.highlight(QUERIES[-1], ["a fox and a dog"]) == ["a <b>fox</b> and a dog"]
    with pytest.raises(ValueError, match="several columns"):
        dataset.highlight(MultiMatchQuery("fox", ["t", "u"]), TEXTS)
    both = dataset.highlight(MultiMatchQuery("fox", ["t", "u"]), ["fox"], column="u")
    assert both == ["<b>fox</b>"]

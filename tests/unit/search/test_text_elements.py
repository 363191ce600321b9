"""Elements of lists as documents, compared with an exhaustive search of every element.

After random changes of a table, a query by element returns the matching elements with their
positions and BM25 scores.
"""

import random

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.index.inverted.bm25 import Corpus
from lancelet.index.text.elements import list_elements, lists_of_texts, texts_per_row
from lancelet.query import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lancelet.scan.indexing.segments import IndexUnusableWarning

ELEMENT = DocumentGranularity.LIST_ELEMENT
ROW = DocumentGranularity.ROW
WORDS = ["red", "fox", "dog", "cat", "owl", "elk"]
PLAIN = {"stem": False, "remove_stop_words": False, "with_position": True}
TYPES = [pa.list_(pa.string()), pa.large_list(pa.large_string())]


def lists_by(chance, ids):
    def text():
        return chance.choice(
            [None, "", "!", *(" ".join(chance.choices(WORDS, k=k)) for k in (1, 3))]
        )

    return {
        each: None if chance.random() < 0.1 else [text() for _ in range(chance.randint(0, 4))]
        for each in ids
    }


def table_of(lists, data_type=TYPES[0]):
    return pa.table(
        {"id": pa.array(lists, pa.int64()), "tags": pa.array(lists.values(), data_type)}
    )


def elements(lists):
    """Every element with its terms, by row and position."""
    return {
        (each, place): (text or "").replace("!", "").split()
        for each, texts in lists.items()
        for place, text in enumerate(texts or [])
    }


def scores(lists, words):
    """The BM25 scores of elements with any of the terms."""
    documents = elements(lists)
    corpus = Corpus(len(documents), sum(map(len, documents.values())))
    found = {}
    for word in words.split():
        counts = {each: own.count(word) for each, own in documents.items() if word in own}
        for each, count in counts.items():
            norm = 1.2 * (0.25 + 0.75 * len(documents[each]) / corpus.mean_length)
            weight = corpus.idf(len(counts)) * 2.2 * count / (count + norm)
            found[each] = found.get(each, 0) + weight
    return found


def found(dataset, query, **options):
    table = dataset.to_table(columns=["id"], full_text_query=query, **options)
    assert table.schema.names == ["id", "_doc_index", "_score"]
    assert table.schema.field("_doc_index").type == pa.list_(
        pa.field("item", pa.uint32(), nullable=False)
    )
    places = [place for (place,) in table["_doc_index"].to_pylist()]
    keys = list(zip(table["id"].to_pylist(), places, strict=True))
    own = table["_score"].to_pylist()
    assert own == sorted(own, reverse=True)
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, own, strict=True))


def match(words, **options):
    return MatchQuery(words, "tags", document_granularity=ELEMENT, **options)


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("options", [{}, {"format_version": 1}, {"block_size": 256}])
def test_elements_are_found_and_scored_with_an_index_and_without(tmp_path, data_type, options):
    chance = random.Random(7)
    lists = lists_by(chance, range(300))
    dataset = lancelet.write_dataset(table_of(lists, data_type), str(tmp_path / "t.lance"))
    for is_indexed in (False, True):
        if is_indexed:
            dataset.create_scalar_index(
                "tags", "INVERTED", document_granularity=ELEMENT, **PLAIN, **options
            )
            assert [each.name for each in dataset.describe_indices()] == ["tags_list_element_idx"]
        for words in ("fox", "red owl", "fox fox"):
            assert found(dataset, match(words)) == pytest.approx(scores(lists, words), rel=1e-5)
        both = found(dataset, match("fox dog", operator=FullTextOperator.AND))
        has_both = {each for each, own in elements(lists).items() if {"fox", "dog"} <= {*own}}
        assert both == pytest.approx(
            {each: scores(lists, "fox dog")[each] for each in has_both}, rel=1e-5
        )
        phrase = found(dataset, PhraseQuery("fox dog", "tags", document_granularity=ELEMENT))
        stands = {each for each, own in elements(lists).items() if "fox dog" in " ".join(own)}
        assert set(phrase) == stands
        best = found(dataset, match("fox"), limit=5)
        assert list(best.values()) == pytest.approx(
            sorted(scores(lists, "fox").values(), reverse=True)[:5], rel=1e-5
        )


def test_queries_are_put_together_by_element(tmp_path):
    lists = {0: ["red fox", "fox", "red"], 1: ["fox dog"]}
    dataset = lancelet.write_dataset(table_of(lists), str(tmp_path / "t.lance"))
    dataset.create_scalar_index("tags", "INVERTED", document_granularity=ELEMENT, **PLAIN)
    red, fox = match("red"), match("fox")
    assert set(found(dataset, red & fox)) == {(0, 0)}
    assert set(found(dataset, red | fox)) == {(0, 0), (0, 1), (0, 2), (1, 0)}
    assert set(found(dataset, BooleanQuery([(Occur.MUST, fox), (Occur.MUST_NOT, red)]))) == {
        (0, 1),
        (1, 0),
    }
    less = found(dataset, BoostQuery(fox, red, negative_boost=0.5))
    whole = scores(lists, "fox")
    assert less[0, 0] == pytest.approx(whole[0, 0] - 0.5 * scores(lists, "red")[0, 0], rel=1e-5)
    assert set(found(dataset, match("rad", fuzziness=1))) == {(0, 0), (0, 2)}
    assert set(found(dataset, fox, filter="id = 1", prefilter=True)) == {(1, 0)}
    assert set(found(dataset, fox, filter="id = 0")) == {(0, 0), (0, 1)}
    assert len(found(dataset, fox, limit=1, offset=1)) == 1
    assert dataset.scanner(full_text_query=fox).count_rows() == 3
    dataset.delete("id = 0")
    assert set(found(dataset, fox)) == {(1, 0)}


def test_columns_are_in_the_requested_order(tmp_path):
    dataset = lancelet.write_dataset(table_of({0: ["fox"]}), str(tmp_path / "t.lance"))

    def names(columns, **options):
        scanner = dataset.scanner(columns=columns, full_text_query=match("fox"), **options)
        assert scanner.to_table().schema == scanner.projected_schema
        return scanner.projected_schema.names

    assert names(["_doc_index", "_score", "id"]) == ["_doc_index", "_score", "id"]
    assert names(["_score", "id"]) == ["_score", "id", "_doc_index"]
    assert names(["id"], with_row_id=True) == ["id", "_doc_index", "_score", "_rowid"]
    assert names(["id"], disable_scoring_autoprojection=True) == ["id", "_doc_index"]
    assert names(["_doc_index"]) == ["_doc_index", "_score"]


def test_a_query_takes_the_documents_that_are_indexed_and_no_mixture(tmp_path):
    table = table_of({0: ["red fox", "fox"]}).append_column("t", [["fox"]])
    dataset = lancelet.write_dataset(table, str(tmp_path / "t.lance"))
    plain = MatchQuery("fox", "tags")
    assert dataset.to_table(full_text_query=plain).num_rows == 1
    dataset.create_scalar_index("tags", "INVERTED", document_granularity=ELEMENT)
    assert set(found(dataset, plain)) == {(0, 0), (0, 1)}
    by_row = MatchQuery("fox", "tags", document_granularity=ROW)
    with pytest.raises(InvalidInputError, match=r"requested Row.*ListElement"):
        dataset.to_table(full_text_query=by_row)
    with pytest.raises(InvalidInputError, match="INVERTED index"):
        dataset.to_table(full_text_query="fox")
    with pytest.raises(UnsupportedError, match="MultiMatch"):
        dataset.to_table(full_text_query=MultiMatchQuery("fox", ["tags", "t"]))
    with pytest.raises(UnsupportedError, match="combined_fields"):
        dataset.to_table(full_text_query=CombinedFieldsQuery("fox", ["tags", "t"]))
    with pytest.raises(InvalidInputError, match="cannot mix"):
        dataset.to_table(full_text_query=match("fox") | MatchQuery("fox", "t"))
    for make in (
        lambda: dataset.to_table(
            full_text_query=MatchQuery("fox", "t", document_granularity=ELEMENT)
        ),
        lambda: dataset.create_scalar_index("t", "INVERTED", document_granularity=ELEMENT),
    ):
        with pytest.raises(InvalidInputError, match="no List layer"):
            make()
    with pytest.raises(InvalidInputError, match="unknown FTS document granularity 'word'"):
        dataset.create_scalar_index("tags", "INVERTED", document_granularity="word")
    dataset.create_scalar_index("tags", "INVERTED")
    with pytest.raises(InvalidInputError, match=r"ambiguous.*document_granularity"):
        dataset.to_table(full_text_query=plain)
    assert dataset.to_table(full_text_query="fox").num_rows == 1
    assert dataset.to_table(full_text_query=by_row).num_rows == 1
    assert set(found(dataset, match("fox"))) == {(0, 0), (0, 1)}


def test_a_row_is_explained_by_its_best_element(tmp_path):
    dataset = lancelet.write_dataset(
        table_of({0: ["red fox", "fox"], 1: ["dog"]}), str(tmp_path / "t.lance")
    )
    dataset.create_scalar_index("tags", "INVERTED", document_granularity=ELEMENT)
    whole = found(dataset, match("fox"))
    explained = dataset.explain_score(match("fox"), 0)
    assert explained.score == pytest.approx(max(whole.values()))
    assert explained.terms[0].length == 1
    assert dataset.explain_score(match("fox"), 1).score is None
    assert dataset.highlight(match("fox"), ["red fox"]) == ["red <b>fox</b>"]


def test_damaged_files_of_an_index_by_element_are_done_without(tmp_path):
    path = tmp_path / "t.lance"
    lists = {0: ["red fox", "fox"], 1: ["dog"]}
    dataset = lancelet.write_dataset(table_of(lists), str(path))
    dataset.create_scalar_index("tags", "INVERTED", document_granularity=ELEMENT, **PLAIN)
    whole = found(dataset, match("red") | match("fox"))
    (docs,) = path.glob("_indices/*/part_0_docs.lance")
    docs.write_bytes(docs.read_bytes()[:40])
    with pytest.warns(IndexUnusableWarning):
        assert found(lancelet.dataset(str(path)), match("red") | match("fox")) == pytest.approx(
            whole
        )


def test_texts_in_lists_of_structs_in_lists_are_found(tmp_path):
    inner = pa.struct([("text", pa.string())])
    outer = pa.struct([("docs", pa.list_(inner)), ("n", pa.int64())])
    groups = [
        [{"docs": [{"text": "fox"}, {"text": "dog"}]}, {"docs": [None, {"text": "a fox"}]}],
        [None, {"docs": None}, {"docs": [{"text": "fox fox"}]}],
        None,
    ]
    table = pa.table({"id": [0, 1, 2], "g": pa.array(groups, pa.list_(outer))})
    dataset = lancelet.write_dataset(table, str(tmp_path / "t.lance"))
    column = "g.docs.text"
    wanted = {(0, (0, 0)), (0, (1, 1)), (1, (2, 0))}

    def by_element():
        query = MatchQuery("fox", column, document_granularity=ELEMENT)
        rows = dataset.to_table(columns=["id"], full_text_query=query).to_pylist()
        return {(row["id"], tuple(row["_doc_index"])) for row in rows}

    assert by_element() == wanted
    dataset.create_scalar_index(column, "INVERTED", document_granularity=ELEMENT)
    assert by_element() == wanted
    dataset.create_scalar_index(column, "INVERTED")
    rows = dataset.to_table(full_text_query=MatchQuery("fox", column, document_granularity=ROW))
    assert sorted(rows["id"].to_pylist()) == [0, 1]
    names = {each.name for each in dataset.describe_indices()}
    assert names == {"g.docs.text_idx", "g.docs.text_list_element_idx"}
    with pytest.raises(KeyError, match="within lists"):
        dataset.create_scalar_index(column, "BTREE")


def test_slices_of_lists_are_split_like_whole_lists():
    texts = [["a"], ["b", None], None, [], ["c"]]
    for whole in (pa.array(texts), pa.array(texts, pa.large_list(pa.large_string()))):
        for start in range(6):
            part = whole.slice(start)
            own = list_elements(part)
            taken = [
                (row, place, text)
                for row, (place,), text in zip(
                    own.rows.tolist(),
                    own.element_indices.tolist(),
                    own.texts.to_pylist(),
                    strict=True,
                )
            ]
            assert taken == [
                (row, place, text)
                for row, each in enumerate(texts[start:])
                for place, text in enumerate(each or [])
            ]
            joined = texts_per_row(part).to_pylist()
            assert joined == [
                None if each is None else " ".join(filter(None, each)) for each in texts[start:]
            ]
    structs = pa.array([[{"x": "a"}], None, [None, {"x": "b"}]])
    assert lists_of_texts(structs.slice(1), ["item", "x"]).to_pylist() == [None, [None, "b"]]

"""Text indices of JSON documents: the same rows and scores as the reference finds.

Goal: both name and cut the values of documents alike. Method: documents of every type of value,
nested and in lists, indexed by either and extended by the other. (Without an index the reference
looks for words in the text of the document, and ours for its values.)
"""

import json

import lance
import lance.query
import pyarrow as pa
import pytest

import lancelet
import lancelet.query

pytestmark = pytest.mark.interop

DOCUMENTS = (
    {"title": "The Red Foxes", "n": 1, "tags": ["red", "quick fox"], "in": {"deep": {"x": "fox"}}},
    {"title": "dogs", "n": 1.5, "ok": True, "none": None, "tags": []},
    {"title": "", "big": 10**18, "small": -0.25, "e": 1e21, "ok": False},
    {"a,b": "comma, fox", "a.b": "dot", "tags": [{"k": "fox fox"}, [1, "red"]]},
    "fox",
    ["red", "fox"],
    {},
)
QUERIES = (
    "title,str,fox",
    "title,str,red dogs",
    "tags,str,fox",
    "tags,str,red",
    "tags.k,str,fox",
    "in.deep.x,str,foxes",
    "n,number,1",
    "n,number,1.5",
    "big,number,1000000000000000000",
    "small,number,-0.25",
    "ok,bool,true",
    "none,null,null",
    "tags,number,1",
    "a.b,str,dot",
    "title,str,dogs;n,number,1",
    "title,number,1",
)


def rows(first):
    texts = [json.dumps(document) for document in DOCUMENTS] + [None]
    numbers = list(range(first, first + len(texts)))
    return pa.table({"id": numbers, "d": pa.array(texts, pa.json_())})


def agree(path, step):
    for text in QUERIES:
        mine, theirs = (
            module.dataset(path).to_table(
                columns=["id"], full_text_query=module.query.MatchQuery(text, "d")
            )
            for module in (lancelet, lance)
        )
        expected = dict(zip(theirs["id"].to_pylist(), theirs["_score"].to_pylist(), strict=True))
        found = dict(zip(mine["id"].to_pylist(), mine["_score"].to_pylist(), strict=True))
        assert found == pytest.approx(expected, rel=1e-5), (step, text)


@pytest.mark.parametrize("writer", [lancelet, lance], ids=["ours", "theirs"])
def test_documents_are_found_identically(tmp_path, writer):
    other = lance if writer is lancelet else lancelet
    path = str(tmp_path / "table.lance")
    writer.write_dataset(rows(0), path)
    query = lancelet.query.MatchQuery("tags.k,str,fox", "d")
    unindexed = lancelet.dataset(path).to_table(columns=["id"], full_text_query=query)
    assert unindexed["id"].to_pylist() == [3]
    writer.dataset(path).create_scalar_index("d", "INVERTED", with_position=True)
    agree(path, "built")
    other.write_dataset(rows(100), path, mode="append")
    agree(path, "appended")
    other.dataset(path).optimize.optimize_indices()
    agree(path, "extended by the other")
    lancelet.dataset(path).delete("id % 3 = 0")
    writer.dataset(path).optimize.compact_files()
    agree(path, "compacted")


@pytest.mark.parametrize("query", ["fox", "title,fox", "title,text,fox"])
def test_queries_that_name_no_value_are_rejected(tmp_path, query):
    dataset = lancelet.write_dataset(rows(0), str(tmp_path / "table.lance"))
    dataset.create_scalar_index("d", "INVERTED")
    with pytest.raises(ValueError, match="path,type,value"):
        dataset.to_table(full_text_query=lancelet.query.MatchQuery(query, "d"))

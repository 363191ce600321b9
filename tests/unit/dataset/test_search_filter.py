"""One search filters another, with the results of pylance."""

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import VectorSearchQuery as ReferenceQuery

import lancelet
import lancelet.query
from lancelet.dataset import VectorSearchQuery
from lancelet.dataset.scan.search import split_filter
from lancelet.errors import InvalidInputError
from lancelet.query import MatchQuery

VECTORS = np.arange(40, dtype=np.float32).reshape(20, 2)
NEAREST = {"column": "v", "q": VECTORS[10], "k": 5}


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    texts = ["hello world" if i % 3 == 0 else "hello" if i % 2 else "bye world" for i in range(20)]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 2)
    table = pa.table({"id": range(20), "t": texts, "v": vectors})
    uri = str(tmp_path_factory.mktemp("search") / "t.lance")
    dataset = lancelet.write_dataset(table, uri, max_rows_per_file=7)
    dataset.create_scalar_index("t", "INVERTED")
    return uri


def _arguments(classes, kind, expression):
    """Return the arguments of a search and what filters it, in the classes of one library."""
    texts, vectors = classes[0]("world", "t"), classes[1]("v", VECTORS[10], 5)
    main, search = (
        ({"nearest": NEAREST}, texts)
        if kind == "vectors"
        else ({"full_text_query": texts}, vectors)
    )
    if expression is None:
        return {**main, "filter": search}
    return {**main, "filter": {"expr_filter": expression, "search_filter": search}}


OURS = (lancelet.query.MatchQuery, VectorSearchQuery)
THEIRS = (lance.query.MatchQuery, ReferenceQuery)


@pytest.mark.parametrize("prefilter", [True, False])
@pytest.mark.parametrize("expression", [None, "id > 9"])
@pytest.mark.parametrize("kind", ["vectors", "texts"])
def test_a_filtering_search_matches_the_reference(uri, kind, expression, prefilter):
    ours = lancelet.dataset(uri).scanner(**_arguments(OURS, kind, expression), prefilter=prefilter)
    theirs = lance.dataset(uri).scanner(**_arguments(THEIRS, kind, expression), prefilter=prefilter)
    found, expected = ours.to_table(), theirs.to_table()
    assert found.schema.names == expected.schema.names
    assert set(found["id"].to_pylist()) == set(expected["id"].to_pylist())


def test_a_search_filters_only_a_search_of_the_other_kind(uri):
    dataset = lancelet.dataset(uri)
    with pytest.raises(InvalidInputError, match="requires `nearest`"):
        dataset.to_table(filter=MatchQuery("world", "t"))
    with pytest.raises(InvalidInputError, match="filtered by a text search"):
        dataset.to_table(nearest=NEAREST, filter=VectorSearchQuery("v", VECTORS[0]))


@pytest.mark.parametrize("library", [lancelet, lance])
def test_only_match_queries_are_supported_as_filters(uri, library):
    query = library.query.BoostQuery(
        library.query.MatchQuery("world", "t"), library.query.MatchQuery("bye", "t")
    )
    scanner = library.dataset(uri).scanner(nearest=NEAREST, filter=query, prefilter=False)
    with pytest.raises(ValueError, match="Only Match queries are supported"):
        scanner.to_table()


def test_a_filter_of_two_parts_is_split():
    query = MatchQuery("a", "t")
    both = split_filter({"expr_filter": "id > 1", "search_filter": query})
    assert (both.expression, both.search) == ("id > 1", query)
    assert split_filter(None) == split_filter({})


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"nprobes": 0},
        {"ef": 0},
        {"minimum_nprobes": -1},
        {"minimum_nprobes": 3, "maximum_nprobes": 2},
        {"refine_factor": 0},
        {"query_parallelism": -2},
        {"approx_mode": "quick"},
    ],
)
def test_numbers_that_mean_nothing_are_rejected_at_once(wrong):
    with pytest.raises(ValueError, match=r"must be"):
        VectorSearchQuery("v", VECTORS[0], **wrong)

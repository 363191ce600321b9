"""Random queries of texts, put to both implementations over the same files.

Goal: the same rows with the same scores. Method: a table of few words, so that much is found, with
an index by either in several segments; deleted, updated and appended rows; queries that hold other
queries, with and without filters. Words in documents of equal scores may be cut anywhere by a
limit, so that only scores are compared there. Words that may differ are asked for where all rows
have an index: in rows without one the reference looks for the words as they are. Of phrases of
three words with others between them it misses some, since it goes on with all words at once.
"""

import json
import random

import lance
import lance.query
import pyarrow as pa
import pytest

import lancelet
import lancelet.query
from lancelet.search.full_text import render_query

pytestmark = pytest.mark.interop

WORDS = ["fox", "foxes", "fix", "red", "rod", "reed", "dog", "dig", "cat", "cart", "a1", "naive"]


class Chance(random.Random):
    """What decides, and whether words may differ from those of the query."""

    may_differ = True


def rows(chance, first, stop):
    def text():
        count = chance.choice([0, 1, 2, 5, 12, 40])
        weights = range(len(WORDS), 0, -1)
        return " ".join(chance.choices(WORDS, k=count, weights=weights)) if count else None

    numbers = range(first, stop)
    return pa.table({"id": numbers, "t": [text() for _ in numbers], "u": [text() for _ in numbers]})


def some_words(chance, most):
    return " ".join(chance.choices([*WORDS, "nowhere"], k=chance.randint(1, most)))


def match(chance):
    column = chance.choice("tu")
    options = {"boost": chance.choice([1.0, 1.0, 0.5, 3.0])}
    options["operator"] = chance.choice(["OR", "OR", "AND"])
    if chance.may_differ and chance.random() < 0.4:
        options |= {
            "fuzziness": chance.choice([1, 2]),
            "prefix_length": chance.choice([0, 0, 1, 2]),
            "max_expansions": chance.choice([50, 50, 3]),
        }
    words = some_words(chance, 4)

    def make(q):
        own = {**options, "operator": q.FullTextOperator(options["operator"])}
        return q.MatchQuery(words, column, **own)

    return make


def phrase(chance):
    words, column = some_words(chance, 3), chance.choice("tu")
    slop = 0 if words.count(" ") > 1 else chance.choice([0, 0, 1, 3])
    return lambda q: q.PhraseQuery(words, column, slop=slop)


def boost(chance, depth):
    positive, negative = query(chance, depth + 1), query(chance, depth + 1)
    by = chance.choice([0.1, 0.5, 1.0])
    return lambda q: q.BoostQuery(positive(q), negative(q), negative_boost=by)


def multi_match(chance):
    words = some_words(chance, 3)
    boosts = chance.choice([None, [1.0, 2.0]])
    return lambda q: q.MultiMatchQuery(words, ["t", "u"], boosts=boosts)


def boolean(chance, depth):
    parts = [
        (chance.choice(["MUST", "SHOULD", "MUST_NOT"]), query(chance, depth + 1))
        for _ in range(chance.randint(1, 3))
    ]
    if all(occur == "MUST_NOT" for occur, _ in parts):
        parts.append(("SHOULD", match(chance)))
    return lambda q: q.BooleanQuery([(q.Occur(occur), part(q)) for occur, part in parts])


def query(chance, depth=0):
    kinds = [match, match, phrase, multi_match]
    if depth < 2:
        kinds += [lambda c: boolean(c, depth), lambda c: boost(c, depth)]
    return chance.choice(kinds)(chance)


def table(chance, path):
    writer = chance.choice([lancelet, lance])
    lancelet.write_dataset(rows(chance, 0, 300), path, max_rows_per_file=chance.choice([80, 300]))
    version = chance.choice([{}, {"block_size": 256}, {"format_version": 1}])
    for column in "tu":
        writer.dataset(path).create_scalar_index(
            column, "INVERTED", with_position=True, stem=False, remove_stop_words=False, **version
        )
    if chance.random() < 0.7:
        lancelet.write_dataset(rows(chance, 300, 380), path, mode="append")
        if chance.random() < 0.6:
            merged = chance.choice([0, 1])
            writer.dataset(path).optimize.optimize_indices(num_indices_to_merge=merged)
    if chance.random() < 0.5:
        lancelet.dataset(path).delete(f"id % {chance.randint(3, 9)} = 1")
    if chance.random() < 0.3:
        lancelet.dataset(path).update({"t": "'fox red fox'"}, where="id % 11 = 5")
    statistics = lancelet.dataset(path).stats
    chance.may_differ = not any(
        statistics.index_stats(f"{column}_idx")["num_unindexed_fragments"] for column in "tu"
    )


def found(module, path, make, options):
    dataset = module.dataset(path)
    try:
        result = dataset.to_table(
            columns=["id", "_score"], full_text_query=make(module.query), **options
        )
    except (ValueError, OSError) as error:
        return type(error).__name__, str(error)
    return dict(zip(result["id"].to_pylist(), result["_score"].to_pylist(), strict=True))


OPTIONS = (
    {},
    {"filter": "id % 3 = 0", "prefilter": True},
    {"filter": "id % 3 = 0"},
    {"fast_search": True},
)


def ask(path, seed, count):
    chance = Chance(seed)
    table(chance, path)
    for number in range(count):
        make, options = query(chance), chance.choice(OPTIONS)
        mine, expected = found(lancelet, path, make, options), found(lance, path, make, options)
        said = (seed, number, options, render_query(make(lancelet.query)))
        assert isinstance(mine, dict) == isinstance(expected, dict), (said, mine, expected)
        if isinstance(expected, tuple):
            continue
        assert mine.keys() == expected.keys(), said
        assert mine == pytest.approx(expected, rel=1e-5, abs=1e-5), said
        if options.get("filter") is None or options.get("prefilter"):
            best = found(lancelet, path, make, {**options, "limit": 5})
            scores = sorted(expected.values(), reverse=True)[:5]
            assert sorted(best.values(), reverse=True) == pytest.approx(scores, abs=1e-5), said


@pytest.mark.parametrize("seed", range(3))
def test_random_queries_find_the_same(tmp_path, seed):
    ask(str(tmp_path / "table.lance"), seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_queries_find_the_same(tmp_path, seed):
    ask(str(tmp_path / "table.lance"), seed, 40)


@pytest.mark.parametrize("writer", [lance, lancelet])
@pytest.mark.parametrize(
    "options",
    [{"base_tokenizer": "code", "split_identifiers": True}, {"base_tokenizer": "ngram"}],
)
def test_of_words_at_one_position_any_is_enough(tmp_path, writer, options):
    texts = ["getUserName", "user name", "UserName get", "foo_bar baz", "bar foo", "foo get get"]
    uri = str(tmp_path / "names.lance")
    writer.write_dataset(pa.table({"t": texts}), uri)
    writer.dataset(uri).create_scalar_index("t", "INVERTED", **options)
    writer.write_dataset(pa.table({"t": texts[::-1]}), uri, mode="append")
    for words in ("getUserName", "foo_bar", "get user", "getGet foo_get"):
        for operator in ("AND", "OR"):
            found = []
            for module in (lance, lancelet):
                need = module.query.FullTextOperator(operator)
                query = module.query.MatchQuery(words, "t", operator=need)
                read = module.dataset(uri).to_table(full_text_query=query, with_row_id=True)
                found.append({row["_rowid"]: row["_score"] for row in read.to_pylist()})
            assert found[0]
            assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_names_in_programs_are_cut_as_plain_words_where_letters_may_differ(tmp_path):
    texts = ["foo_bar baz", "foo bar baz", "bar foo", "fop bat", "fop_bar", "boo_bar far", "fooFoo"]
    uri = str(tmp_path / "names.lance")
    code = {"base_tokenizer": "code", "split_identifiers": True}
    lance.write_dataset(pa.table({"t": texts}), uri).create_scalar_index("t", "INVERTED", **code)
    for words in ("foo_bar", "foo_bar baz", "fooFoo bat"):
        for operator in ("AND", "OR"):
            found = []
            for module in (lance, lancelet):
                need = module.query.FullTextOperator(operator)
                query = module.query.MatchQuery(words, "t", fuzziness=1, operator=need)
                read = module.dataset(uri).to_table(full_text_query=query, with_row_id=True)
                found.append({row["_rowid"]: row["_score"] for row in read.to_pylist()})
            assert found[0] or operator == "AND"
            assert found[1] == pytest.approx(found[0], rel=1e-5)


FUZZY_TEXTS = [
    "running dogs",
    "runs quickly",
    "run",
    "Jumping foxes",
    "the cats",
    "café noir",
    "cafe",
]
FUZZY_TEXTS += ["Universities", "flying", "flies", "fly", "ein Über-Text", "a1 b2", ""]
FUZZY_OPTIONS = [{"stem": True}, {"stem": False}, {"lower_case": False}, {"ascii_folding": False}]
FUZZY_OPTIONS += [
    {"base_tokenizer": "ngram"},
    {"language": "French"},
    {"base_tokenizer": "whitespace"},
]


@pytest.mark.parametrize("options", FUZZY_OPTIONS, ids=str)
@pytest.mark.parametrize("is_json", [False, True])
def test_words_with_fuzziness_are_analyzed_as_the_reference_does(tmp_path, options, is_json):
    texts = pa.array(FUZZY_TEXTS)
    if is_json:
        texts = pa.array([json.dumps({"a": text}) for text in FUZZY_TEXTS], pa.json_())
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"t": texts}), uri)
    lancelet.dataset(uri).create_scalar_index("t", "INVERTED", **options)
    num_found = 0
    for words in (
        "runing",
        "running",
        "foxs",
        "Cats the",
        "caffe",
        "café",
        "universitys flyng",
        "uber",
    ):
        for fuzziness, length in ((1, 0), (2, 0), (2, 2)):
            found = []
            for module in (lance, lancelet):
                query = module.query.MatchQuery(
                    f"a,str,{words}" if is_json else words,
                    "t",
                    fuzziness=fuzziness,
                    prefix_length=length,
                )
                read = module.dataset(uri).to_table(full_text_query=query, with_row_id=True)
                found.append({row["_rowid"]: row["_score"] for row in read.to_pylist()})
            assert found[1] == pytest.approx(found[0], rel=1e-5), (words, fuzziness, length)
            num_found += len(found[0])
    assert num_found

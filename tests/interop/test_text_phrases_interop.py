"""Random phrases any of whose words may be one of several tokens, put to both implementations.

Goal: the same rows with the same scores. Method: identifiers of few parts, cut into names and
their parts, or into n-grams of letters; an index by either over some rows, appended and deleted
rows beside it. Between more than two places of a phrase no others stand: of those the reference
misses some, since it goes on with all words at once.
"""

import random

import lance
import lance.query
import pyarrow as pa
import pytest

import lancelet
import lancelet.query

pytestmark = pytest.mark.interop

PARTS = ["foo", "bar", "baz", "get", "user"]
TOKENIZERS = {
    "code": {"base_tokenizer": "code", "split_identifiers": True},
    "code, stop words": {
        "base_tokenizer": "code",
        "split_identifiers": True,
        "remove_stop_words": True,
        "custom_stop_words": ["get"],
    },
    "ngram": {"base_tokenizer": "ngram"},
    "ngram of 2": {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4},
}
VERSIONS = [{}, {"block_size": 256}, {"format_version": 1}]


def name(chance):
    parts = chance.choices(PARTS, k=chance.choice([1, 1, 2, 3]))
    if chance.random() < 0.5:
        return "_".join(parts)
    return parts[0] + "".join(part.capitalize() for part in parts[1:])


def text(chance, most):
    return " ".join(name(chance) for _ in range(chance.randint(1, most)))


def texts(chance, count, by_element):
    def value():
        if chance.random() < 0.1:
            return None
        if by_element:
            return [text(chance, 5) for _ in range(chance.randint(0, 3))]
        return text(chance, chance.choice([1, 3, 9]))

    kind = pa.list_(pa.string()) if by_element else pa.string()
    return pa.table({"t": pa.array([value() for _ in range(count)], kind)})


def found(module, uri, words, slop, by, options):
    granularity = module.query.DocumentGranularity(by)
    query = module.query.PhraseQuery(words, "t", slop=slop, document_granularity=granularity)
    read = module.dataset(uri).to_table(full_text_query=query, with_row_id=True, **options)
    return {
        (row["_rowid"], *(row.get("_doc_index") or ())): row["_score"] for row in read.to_pylist()
    }


def ask(uri, seed, count, tokenizer, by_element):
    chance, by = random.Random(seed), "list_element" if by_element else "row"
    writer = chance.choice([lance, lancelet])
    own = TOKENIZERS[tokenizer]
    options = own if "code" in tokenizer else own | chance.choice(VERSIONS)
    if by_element:
        options = options | {"document_granularity": writer.query.DocumentGranularity(by)}
    lance.write_dataset(texts(chance, 200, by_element), uri, max_rows_per_file=120)
    writer.dataset(uri).create_scalar_index("t", "INVERTED", with_position=True, **options)
    if chance.random() < 0.7:
        lance.write_dataset(texts(chance, 40, by_element), uri, mode="append")
        if chance.random() < 0.5:
            writer.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
            lance.write_dataset(texts(chance, 20, by_element), uri, mode="append")
    if chance.random() < 0.5:
        lance.dataset(uri).delete("t is null")
    for number in range(count):
        words, slop = text(chance, 3), chance.choice([0, 0, 1, 2])
        places = {each.position for each in lancelet.tokenize(words, **TOKENIZERS[tokenizer])}
        slop = slop if len(places) < 3 else 0
        options = chance.choice([{}, {"fast_search": True}])
        expected, mine = (found(each, uri, words, slop, by, options) for each in (lance, lancelet))
        said = (seed, number, words, slop, options)
        assert mine.keys() == expected.keys(), said
        assert mine == pytest.approx(expected, rel=1e-5), said
        best = found(lancelet, uri, words, slop, by, {**options, "limit": 5})
        scores = sorted(expected.values(), reverse=True)[:5]
        assert sorted(best.values(), reverse=True) == pytest.approx(scores, rel=1e-5), said


@pytest.mark.parametrize("by_element", [False, True])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("seed", range(2))
def test_random_phrases_find_the_same(tmp_path, seed, tokenizer, by_element):
    ask(str(tmp_path / "names.lance"), seed, 12, tokenizer, by_element)

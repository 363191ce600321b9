"""Text indices through their life, each implementation searching and keeping up the other's.

Goal: after every step both find the same rows with the same scores. Method: one table of random
words with an index of each format version, written by either, changed, extended, merged by the
other, compacted; queries of every kind.
"""

import random
import uuid

import lance
import lance.query
import numpy as np
import pyarrow as pa
import pytest

import lancelet
import lancelet.query
from lancelet.dataset import Index
from lancelet.index.text.analyzer import TextAnalyzer
from lancelet.index.text.characters import fold, letters_and_digits, lower
from lancelet.index.text.options import LANGUAGES, TextOptions
from lancelet.search.text import UnbalancedQuoteWarning

pytestmark = pytest.mark.interop

WORDS = ["fox", "red", "dog", "cat", "the"] + [f"w{number}" for number in range(200)]
VERSIONS = ({"format_version": 1}, {}, {"block_size": 256})
TEXTS = (
    "The quick brown Fox's can't x_y naïve Thé, running runs",
    "日本語テキスト mixed 漢字 U.S.A. 3.14 тест БОЛЬШОЙ",
    "Straße ΟΔΟΣ İstanbul ﬁne Œuvre ½ ² \U0001d518nicode",
    "getUserName foo_bar x2y HTTPServer a->b(c==d) i++ _x $v 0xFF ab12cd",
    "value.parse::<usize>() x!=y a&&b||c <<= => ... <=> ?? /* += a>b #x @y %d ; ^~ \u00fc->",
    "utf8Reader XMLHttpRequest2 __init__ v2_0 ÜberCase aÉb ßA aДж ДЖж ٣a x²y ǅa _A1_ __a__B AB_c",
    "",
    "  \t ",
    "supercalifragilisticexpialidociousandsomemore short",
)
OPTIONS = (
    {},
    {"stem": False, "remove_stop_words": False},
    {"base_tokenizer": "whitespace"},
    {"base_tokenizer": "raw"},
    {"base_tokenizer": "ngram"},
    {"base_tokenizer": "ngram", "min_ngram_length": 1, "max_ngram_length": 4},
    {"base_tokenizer": "ngram", "prefix_only": True},
    {"base_tokenizer": "code"},
    {"base_tokenizer": "code", "split_identifiers": True},
    {"analyzer": "code", "split_identifiers": True, "split_on_numerics": False},
    {"analyzer": "code", "split_identifiers": True, "preserve_original": False},
    {"analyzer": "code", "split_identifiers": True, "index_operators": True},
    {"lower_case": False},
    {"ascii_folding": False},
    {"max_token_length": 5},
    {"custom_stop_words": ["fox", "running"]},
)


def rows(first, stop):
    chance = random.Random(first)

    def text():
        count = chance.choice([0, 1, 3, 10, 60, 200])
        if chance.random() < 0.05:
            return None
        picked = (min(int(chance.expovariate(0.05)), len(WORDS) - 1) for _ in range(count))
        return " ".join(WORDS[place] for place in picked)

    numbers = range(first, stop)
    return pa.table({"id": numbers, "t": [text() for _ in numbers], "u": [text() for _ in numbers]})


def queries(q, *, indexed=True):
    combined = (
        q.CombinedFieldsQuery("fox w3 dog dog", ["t", "u"], boosts=[1.0, 2.5]),
        q.CombinedFieldsQuery("fox w3", ["u", "t"], operator=q.FullTextOperator.AND),
    )
    return (
        *(combined if indexed else ()),
        q.MatchQuery("fox", "t"),
        q.MatchQuery("red w7 dog fox the", "t", boost=2.0),
        q.MatchQuery("red dog", "t", operator=q.FullTextOperator.AND),
        q.MatchQuery("fox fox", "t"),
        q.MatchQuery("foxes", "t"),
        q.PhraseQuery("red dog", "t"),
        q.PhraseQuery("fox cat", "t", slop=3),
        q.MultiMatchQuery("fox w3", ["t", "u"], boosts=[1.0, 3.0]),
        q.BooleanQuery(
            [
                (q.Occur.MUST, q.MatchQuery("cat", "t")),
                (q.Occur.SHOULD, q.MatchQuery("dog", "u")),
                (q.Occur.MUST_NOT, q.MatchQuery("w1", "t")),
            ]
        ),
        q.MatchQuery("cat", "t") | q.MatchQuery("dog", "u"),
        q.BoostQuery(q.MatchQuery("cat", "t"), q.MatchQuery("dog", "u"), negative_boost=0.3),
    )


def found(module, path, query, **options):
    table = module.dataset(path).to_table(columns=["id"], full_text_query=query, **options)
    return dict(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))


def agree(path, step, *, indexed=True, **options):
    pairs = (queries(module.query, indexed=indexed) for module in (lancelet, lance))
    for place, (ours, theirs) in enumerate(zip(*pairs, strict=True)):
        mine = found(lancelet, path, ours, **options)
        expected = found(lance, path, theirs, **options)
        assert mine.keys() == expected.keys(), (step, place)
        for number, score in expected.items():
            assert mine[number] == pytest.approx(score, rel=1e-5, abs=1e-5), (step, place)


@pytest.mark.parametrize("writer", [lancelet, lance], ids=["ours", "theirs"])
@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_both_find_the_same_through_the_life_of_an_index(tmp_path, writer, version):
    other = lance if writer is lancelet else lancelet
    path = str(tmp_path / "table.lance")
    lancelet.write_dataset(rows(0, 900), path, max_rows_per_file=300)
    dataset = writer.dataset(path)
    for column in ("t", "u"):
        dataset.create_scalar_index(column, "INVERTED", with_position=True, **version)
    agree(path, "built")
    lancelet.dataset(path).delete("id % 7 = 3")
    lancelet.write_dataset(rows(900, 1000), path, mode="append")
    agree(path, "changed")
    agree(path, "fast", fast_search=True)
    agree(path, "filtered", filter="id % 3 = 0", prefilter=True)
    writer.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    agree(path, "extended")
    other.dataset(path).optimize.optimize_indices(num_indices_to_merge=3)
    agree(path, "merged by the other")
    writer.dataset(path).optimize.compact_files()
    agree(path, "compacted")


def test_columns_without_an_index_are_searched_identically(tmp_path):
    path = str(tmp_path / "table.lance")
    lancelet.write_dataset(rows(0, 300), path)
    agree(path, "no index", indexed=False)
    combined = lancelet.query.CombinedFieldsQuery("fox", ["t", "u"])
    with pytest.raises(ValueError, match="inverted index on at least one"):
        found(lancelet, path, combined)
    lancelet.dataset(path).create_scalar_index("u", "INVERTED", stem=False)
    agree_on(path, combined, lance.query.CombinedFieldsQuery("fox", ["t", "u"]))


def agree_on(path, ours, theirs):
    mine, expected = found(lancelet, path, ours), found(lance, path, theirs)
    assert mine == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_fast_search_finds_nothing_in_columns_without_an_index(tmp_path):
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"t": ["fox a", "b"], "u": ["fox", "fox b"]}), uri)
    lancelet.dataset(uri).create_scalar_index("t", "INVERTED")
    for columns, rows in ((["u"], []), (["t", "u"], [0])):
        for module in (lance, lancelet):
            query = module.query.MultiMatchQuery("fox", columns)
            options = {"full_text_query": query, "fast_search": True, "with_row_id": True}
            found = module.dataset(uri).to_table(**options)
            assert found["_rowid"].to_pylist() == rows


def test_words_in_quotes_are_a_phrase(tmp_path):
    path = str(tmp_path / "table.lance")
    dataset = lancelet.write_dataset(rows(0, 300), path)
    dataset.create_scalar_index("t", "INVERTED", with_position=True)
    for words in ('"red dog"', 'red "dog"', '"fox"', '""', '"cat" "dog"', '5" red', ""):
        agree_on(path, words, words)
    for words in ('"red dog', 'red dog"', '"cat" "dog', '"'):
        with pytest.warns(UnbalancedQuoteWarning, match="quote both ends"):
            agree_on(path, words, words)
    dataset.create_scalar_index("u", "INVERTED", with_position=True)
    agree_on(path, "red dog", "red dog")
    for module in (lancelet, lance):
        with pytest.raises(ValueError, match="column must be specified"):
            found(module, path, '"red dog"')


def test_an_index_of_an_empty_table_has_its_tokenizer(tmp_path):
    path = str(tmp_path / "table.lance")
    empty = rows(0, 1).slice(0, 0)
    lancelet.write_dataset(empty, path).create_scalar_index("t", "INVERTED")
    dataset = lancelet.write_dataset(
        pa.table({"id": [1], "t": ["Foxes run"], "u": [""]}), path, mode="append"
    )
    assert set(found(lancelet, path, "fox")) == set(found(lance, path, "fox")) == {1}
    dataset.optimize.optimize_indices()
    assert set(found(lancelet, path, "fox")) == set(found(lance, path, "fox")) == {1}


def test_the_older_of_two_indices_is_used(tmp_path):
    path = str(tmp_path / "table.lance")
    dataset = lancelet.write_dataset(rows(0, 300), path)
    dataset.create_scalar_index("t", "INVERTED", name="z", with_position=True)
    dataset.create_scalar_index("t", "INVERTED", name="a")
    agree_on(path, '"red dog"', '"red dog"')
    with pytest.raises(ValueError, match="Cannot include deleted rows"):
        dataset.to_table(full_text_query="fox", with_row_id=True, include_deleted_rows=True)


@pytest.mark.parametrize("options", [{}, *VERSIONS, {"base_tokenizer": "code"}], ids=str)
def test_segments_are_of_the_version_of_the_format(tmp_path, options):
    versions = []
    for module in (lancelet, lance):
        path = str(tmp_path / module.__name__)
        lancelet.write_dataset(rows(0, 100), path)
        module.dataset(path).create_scalar_index("t", "INVERTED", **options)
        lancelet.write_dataset(rows(100, 120), path, mode="append")
        module.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
        (index,) = module.dataset(path).describe_indices()
        versions.append([segment.index_version for segment in index.segments])
        assert {**index.details, "split_on_numerics": 0, "preserve_original": 0} == {
            **lance.dataset(path).describe_indices()[0].details,
            "split_on_numerics": 0,
            "preserve_original": 0,
        }
    assert versions[0] == versions[1]


def test_custom_stop_words_apply_to_the_next_segment(tmp_path):
    path = str(tmp_path / "table.lance")
    dataset = lancelet.write_dataset(rows(0, 100), path)
    dataset.create_scalar_index("t", "INVERTED", custom_stop_words=["fox"])
    lancelet.write_dataset(rows(100, 200), path, mode="append")
    lancelet.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    for module in (lancelet, lance):
        assert not found(module, path, "fox")
        assert found(module, path, "dog")


def test_several_partitions_are_one_index(tmp_path, monkeypatch):
    monkeypatch.setattr("lancelet.index.inverted.write.POSTINGS_MAX", 4000)
    monkeypatch.setattr("lancelet.index.inverted.kind.TEXTS_PER_BATCH", 300)
    path = str(tmp_path / "table.lance")
    dataset = lancelet.write_dataset(rows(0, 900), path, max_rows_per_file=300)
    for column in ("t", "u"):
        dataset.create_scalar_index(column, "INVERTED", with_position=True)
    assert len(list((tmp_path / "table.lance").rglob("part_1_docs.lance"))) == 2
    agree(path, "partitions")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tokens_are_the_same(options):
    analyzer = TextAnalyzer(TextOptions.from_params(options))
    for text in TEXTS:
        mine = [(token.text, token.position) for token in analyzer.tokens(text)]
        theirs = [(token.text, token.position) for token in lance.tokenize(text, **options)]
        assert mine == theirs, text


def test_chinese_words_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("LANCE_LANGUAGE_MODEL_HOME", str(tmp_path))
    folder = tmp_path / "jieba" / "default"
    folder.mkdir(parents=True)
    (folder / "dict.txt").write_text("我们 98740 r\n光明 1219 n\n前途 1263 n\n的 318825 uj\n")
    (folder / "own.txt").write_text("光明的前途 10\n")
    texts = ("我们都有光明的前途", "光明, hello World 3.14 北京大学", "")

    def agree_on_words():
        analyzer = TextAnalyzer(TextOptions.from_params({"base_tokenizer": "jieba"}))
        for text in texts:
            mine = [(token.text, token.position) for token in analyzer.tokens(text)]
            theirs = lance.tokenize(text, base_tokenizer="jieba")
            assert mine == [(token.text, token.position) for token in theirs]

    agree_on_words()
    (folder / "config.json").write_text('{"main": "dict.txt", "users": ["own.txt"]}')
    agree_on_words()
    dataset = lancelet.write_dataset(pa.table({"id": [1, 2], "t": texts[:2]}), tmp_path / "table")
    dataset.create_scalar_index("t", "INVERTED", base_tokenizer="jieba/default")
    for words in ("光明的前途", "北京大学", "hello"):
        agree_on(str(tmp_path / "table"), words, words)


@pytest.mark.parametrize(
    "options",
    [
        {"base_tokenizer": "simple", "split_identifiers": True},
        {"analyzer": "code", "base_tokenizer": "simple"},
        {"analyzer": "text", "base_tokenizer": "code"},
        {"analyzer": "other"},
        {"base_tokenizer": "other"},
        {"base_tokenizer": "jieba/none"},
        {"base_tokenizer": "lindera/none"},
    ],
    ids=str,
)
def test_input_that_cannot_be_cut_is_rejected_by_both(options):
    for module in (lancelet, lance):
        with pytest.raises(ValueError, match=r"require|unknown|Invalid directory"):
            module.tokenize("fox", **options)


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages_have_the_same_stems_and_stop_words(language):
    letters = {"Russian": "абвгдеилнорстуыья", "Greek": "αβγδεικλνοπρστυως", "Tamil": "கசதபமனிுா"}
    alphabet = letters.get(language, "abdeghilnorstuåäöéèçğ")
    chance = random.Random(language)
    words = ["".join(chance.choices(alphabet, k=chance.randint(1, 9))) for _ in range(2000)]
    text = " ".join(words)
    options = {"language": language, "base_tokenizer": "whitespace"}
    mine = [token.text for token in TextAnalyzer(TextOptions.from_params(options)).tokens(text)]
    assert mine == [token.text for token in lance.tokenize(text, **options)]


def test_every_character_is_treated_identically():
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    plain = {"stem": False, "remove_stop_words": False, "max_token_length": None}
    kept = {**plain, "lower_case": False, "ascii_folding": False}
    member = np.unpackbits(letters_and_digits(), bitorder="little")
    for start in range(0, len(codes), 50_000):
        part = codes[start : start + 50_000]
        text = " ".join(f"a{chr(code)}b" for code in part)
        tokens = iter(lance.tokenize(text, base_tokenizer="simple", **kept))
        for code in part:
            whole = next(tokens).text == f"a{chr(code)}b"
            assert whole == bool(member[code]), hex(code)
            if not whole:
                next(tokens)
        text = "\x01".join(map(chr, part))
        for change, name in ((lower, "lower_case"), (fold, "ascii_folding")):
            options = {**kept, name: True, "base_tokenizer": "raw"}
            assert change(text) == lance.tokenize(text, **options)[0].text


def test_an_index_of_parts_under_one_id_is_merged_and_committed(tmp_path):
    path = str(tmp_path / "table.lance")
    dataset = lancelet.write_dataset(rows(0, 900), path, max_rows_per_file=300)
    own_id = str(uuid.uuid4())
    for fragment in dataset.get_fragments():
        dataset.create_scalar_index(
            "t",
            "INVERTED",
            name="parts",
            replace=False,
            index_uuid=own_id,
            fragment_ids=[fragment.fragment_id],
            with_position=True,
        )
    assert dataset.describe_indices() == []
    dataset.merge_index_metadata(own_id, "INVERTED")
    index = Index(own_id, "parts", [1], dataset.version, {0, 1, 2}, 0)
    operation = lancelet.LanceOperation.CreateIndex([index], [])
    lancelet.LanceDataset.commit(path, operation, read_version=dataset.version)
    assert not list((tmp_path / "table.lance").rglob("staging/*/*"))
    for words in ("fox", '"red dog"', "w7 cat"):
        agree_on(path, words, words)
    with pytest.raises(NotImplementedError, match="Only INVERTED"):
        dataset.merge_index_metadata(own_id, "BITMAP")
    with pytest.raises(ValueError, match="no longer supports merge_index_metadata"):
        dataset.merge_index_metadata(own_id, "BTREE")
    with pytest.raises(FileNotFoundError, match="staged"):
        dataset.merge_index_metadata(str(uuid.uuid4()), "INVERTED")


def test_texts_within_structs_are_searched_where_no_index_has_them(tmp_path):
    def part(ids, texts):
        inner = pa.StructArray.from_arrays([pa.array(texts), pa.array(ids)], ["a.b", "n"])
        return pa.table({"id": ids, "s": inner})

    path = str(tmp_path / "table.lance")
    lancelet.write_dataset(part([0, 1], ["red fox", None]), path)
    agree_on(path, *(each.query.MatchQuery("fox", "s.`a.b`") for each in (lancelet, lance)))
    lancelet.dataset(path).create_scalar_index("s.`a.b`", "INVERTED")
    lancelet.write_dataset(part([2, 3], ["new fox", "dog"]), path, mode="append")
    assert set(found(lancelet, path, "fox")) == {0, 2}
    agree_on(path, "fox", "fox")


@pytest.mark.parametrize("merger", [lancelet, lance], ids=["ours", "theirs"])
@pytest.mark.parametrize("order", ["ot", "to", "oto", "tot"])
@pytest.mark.parametrize("version", [1, 2])
def test_segments_of_both_are_merged_by_either(tmp_path, version, order, merger):
    path = str(tmp_path / "table.lance")
    for place, who in enumerate(order):
        module = {"o": lancelet, "t": lance}[who]
        mode = "append" if place else "create"
        module.write_dataset(rows(50 * place, 50 * place + 50), path, mode=mode)
        if place:
            module.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
        else:
            module.dataset(path).create_scalar_index(
                "t", "INVERTED", with_position=True, format_version=version
            )
    agree_on(path, "red dog", "red dog")
    merger.dataset(path).optimize.optimize_indices(num_indices_to_merge=9)
    (index,) = lance.dataset(path).describe_indices()
    assert len(index.segments) == 1
    for words in ("fox", "red dog", '"red dog"'):
        agree_on(path, words, words)


def test_the_reference_merges_segments_of_both_implementations(tmp_path):
    """Their tokens are stored as its own, as it refuses to merge segments that differ in that."""
    path = str(tmp_path / "table.lance")
    lance.write_dataset(rows(0, 200), path).create_scalar_index("t", "INVERTED", with_position=True)
    for start, merged in ((200, 0), (260, 1), (330, 0)):
        lancelet.write_dataset(rows(start, start + 50), path, mode="append")
        lancelet.dataset(path).optimize.optimize_indices(num_indices_to_merge=merged)
        agree_on(path, "red dog", "red dog")
    lancelet.dataset(path).optimize.compact_files(target_rows_per_fragment=1000)
    agree_on(path, '"red dog"', '"red dog"')
    lancelet.write_dataset(rows(400, 450), path, mode="append")
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=9)
    (index,) = lance.dataset(path).describe_indices()
    assert len(index.segments) == 1
    for words in ("fox", "red dog", '"red dog"'):
        agree_on(path, words, words)


def test_lists_in_lists_are_searched_without_an_index(tmp_path):
    path = str(tmp_path / "table.lance")
    texts = pa.array(
        [[["red fox"], ["dog red"]], None, [["red"], []]], pa.list_(pa.list_(pa.string()))
    )
    lancelet.write_dataset(pa.table({"id": range(3), "t": texts}), path)
    for module in (lancelet, lance):
        with pytest.raises(TypeError, match="INVERTED index"):
            module.dataset(path).create_scalar_index("t", "INVERTED")
    for name in ("ROW", "LIST_ELEMENT"):
        for query in ("red", "fox dog"):
            ours, theirs = (
                module.query.MatchQuery(
                    query, "t", document_granularity=module.query.DocumentGranularity[name]
                )
                for module in (lancelet, lance)
            )
            mine, expected = (
                sorted(
                    module.dataset(path).to_table(columns=["id"], full_text_query=each).to_pylist(),
                    key=str,
                )
                for module, each in ((lancelet, ours), (lance, theirs))
            )
            assert [row.keys() for row in mine] == [row.keys() for row in expected]
            for one, other in zip(mine, expected, strict=True):
                assert one.pop("_score") == pytest.approx(other.pop("_score"), abs=1e-5)
                assert one == other
    ours, theirs = (module.query.PhraseQuery("fox dog", "t") for module in (lancelet, lance))
    assert found(lancelet, path, ours) == pytest.approx(found(lance, path, theirs), abs=1e-5)


def test_names_are_cut_at_letters_of_the_same_cases():
    """What a letter is must not depend on the Unicode that the interpreter has."""
    member = np.unpackbits(letters_and_digits(), bitorder="little")
    # Scripts of thousands of signs have no cases; a few signs of each will do.
    many = ((0x3400, 0xA000), (0xAC00, 0xE000), (0x12000, 0x16800), (0x17000, 0x18D00))
    many = (*many, (0x1B000, 0x1B300), (0x20000, 0x110000))
    skipped = {code for first, stop in many for code in range(first, stop) if code % 4096}
    letters = [chr(code) for code in np.flatnonzero(member).tolist() if code not in skipped]
    options = {"base_tokenizer": "code", "split_identifiers": True, "lower_case": False}
    options |= {"ascii_folding": False}
    text = " ".join(f"x{letter} {letter}X {letter}Xx" for letter in letters)
    mine, expected = (module.tokenize(text, **options) for module in (lancelet, lance))
    assert [each.text for each in mine] == [each.text for each in expected]

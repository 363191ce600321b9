"""Text indices after random changes, compared with an exhaustive search of the texts.

A query returns the matching rows, best first, with and without a limit, and a new index has BM25
scores. The model is a dict of texts that is changed in the same way.
"""

import math
import random

import pyarrow as pa
import pytest

import lancelet
from lancelet.query import BooleanQuery, FullTextOperator, MatchQuery, Occur, PhraseQuery

WORDS = ["red", "fox", "dog", "straße", "naïve", "тест", "漢字", "日本語", "ΟΔΟΣ", "x1"]
WORDS += [f"w{number}" for number in range(80)]
OPTIONS = {"stem": False, "remove_stop_words": False, "ascii_folding": False, "with_position": True}
VERSIONS = ({}, {"format_version": 1}, {"block_size": 256})


class Life:
    """A table, and the texts that it must have."""

    def __init__(self, path, seed):
        self.chance = random.Random(seed)
        self.path, self.texts, self.next_id = path, {}, 0
        self.options = {**OPTIONS, **self.chance.choice(VERSIONS)}
        self.is_stable = self.chance.random() < 0.5
        lancelet.write_dataset(
            self.new_rows(400),
            path,
            max_rows_per_file=self.chance.choice([100, 1000]),
            enable_stable_row_ids=self.is_stable,
        )
        self.rebuild()
        self.saved = {self.open().version: dict(self.texts)}

    def open(self):
        return lancelet.dataset(self.path)

    def text(self):
        if self.chance.random() < 0.05:
            return self.chance.choice([None, "", " ! "])
        count = self.chance.choice([1, 4, 12, 50])
        return " ".join(self.chance.choices(WORDS, k=count, weights=range(len(WORDS), 0, -1)))

    def new_rows(self, count):
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        own = {number: self.text() for number in ids}
        self.texts.update(own)
        return table_of(own)

    def append(self):
        lancelet.write_dataset(self.new_rows(self.chance.choice([1, 60])), self.path, mode="append")

    def delete(self):
        step, rest = self.chance.randint(2, 9), self.chance.randint(0, 8)
        self.open().delete(f"id % {step} = {rest}")
        self.texts = {each: text for each, text in self.texts.items() if each % step != rest}

    def update(self):
        step = self.chance.randint(3, 9)
        self.open().update({"t": "'fox new fox'"}, where=f"id % {step} = 0")
        for number in self.texts:
            if number % step == 0:
                self.texts[number] = "fox new fox"

    def upsert(self):
        known = self.chance.sample(sorted(self.texts), min(20, len(self.texts)))
        own = {number: self.text() for number in known}
        self.texts.update(own)
        merge = self.open().merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(table_of(own))

    def compact(self):
        deferred = not self.is_stable and self.chance.random() < 0.5
        self.open().optimize.compact_files(
            target_rows_per_fragment=10_000, defer_index_remap=deferred
        )

    def optimize(self):
        self.open().optimize.optimize_indices(num_indices_to_merge=self.chance.choice([0, 1, 5]))

    def rebuild(self):
        self.open().create_scalar_index("t", "INVERTED", name="words", **self.options)

    def restore(self):
        version = self.chance.choice(sorted(self.saved))
        lancelet.dataset(self.path, version=version).restore()
        self.texts = dict(self.saved[version])
        self.next_id += 1000

    STEPS = (append, append, delete, update, upsert, compact, optimize, rebuild, restore)

    def live(self):
        step = self.chance.choice(self.STEPS)
        step(self)
        self.saved[self.open().version] = dict(self.texts)
        return step


def table_of(texts):
    return pa.table(
        {"id": pa.array(texts, pa.int64()), "t": pa.array(list(texts.values()), pa.string())}
    )


def words_of(text):
    return [word for word in (text or "").lower().replace("!", " ").split() if word]


class Oracle:
    """Searches every text."""

    def __init__(self, texts):
        self.words = {each: words_of(text) for each, text in texts.items() if words_of(text)}
        self.mean = sum(map(len, self.words.values())) / max(len(self.words), 1)

    def scores(self, tokens):
        found = {}
        for token in tokens:
            counts = {each: own.count(token) for each, own in self.words.items() if token in own}
            total = len(self.words)
            idf = math.log((total - len(counts) + 0.5) / (len(counts) + 0.5) + 1)
            for each, count in counts.items():
                norm = 1.2 * (0.25 + 0.75 * self.length(each) / self.mean)
                found[each] = found.get(each, 0) + idf * 2.2 * count / (count + norm)
        return found

    def length(self, each):
        return len(self.words[each])

    def phrase(self, tokens):
        size = len(tokens)
        own = self.scores(tokens)
        return {
            each: own[each]
            for each, words in self.words.items()
            if any(words[at : at + size] == tokens for at in range(len(words)))
        }

    def answer(self, query):
        if isinstance(query, BooleanQuery):
            (_, must), (_, unless) = query.queries
            without = self.answer(unless)
            return {k: v for k, v in self.answer(must).items() if k not in without}
        tokens = words_of(query.query)
        if isinstance(query, PhraseQuery):
            return self.phrase(tokens)
        found = self.scores(tokens)
        if query.operator is FullTextOperator.AND:
            return {k: v for k, v in found.items() if set(tokens) <= set(self.words[k])}
        return found


QUERIES = (
    MatchQuery("fox", "t"),
    MatchQuery("w70", "t"),
    MatchQuery("red w3 漢字 Straße", "t"),
    MatchQuery("fox dog", "t", operator=FullTextOperator.AND),
    PhraseQuery("red fox", "t"),
    PhraseQuery("fox new fox", "t"),
    BooleanQuery([(Occur.MUST, MatchQuery("тест", "t")), (Occur.MUST_NOT, MatchQuery("red", "t"))]),
)


def check(life, is_new, said):
    oracle = Oracle(life.texts)
    dataset = life.open()
    for query in QUERIES:
        expected = oracle.answer(query)
        found = ranked(dataset, query)
        assert {each for each, _ in found} == set(expected), said
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True), said
        if is_new and life.options.get("block_size") != 256:
            for each, score in found:
                assert score == pytest.approx(expected[each], rel=1e-5), said
        best = ranked(dataset, query, limit=7)
        assert [score for _, score in best] == scores[:7], said
        assert set(best) <= set(found), said
        half = ranked(dataset, query, filter="id % 2 = 0", prefilter=True, limit=5)
        even = {each for each in expected if each % 2 == 0}
        assert {each for each, _ in half} <= even, said
        assert len(half) == min(5, len(even)), said
        after = ranked(dataset, query, filter="id % 2 = 0")
        assert after == [(each, score) for each, score in found if each % 2 == 0], said


def ranked(dataset, query, **options):
    table = dataset.to_table(columns=["id"], full_text_query=query, **options)
    return list(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))


def live_once(path, seed, steps):
    life = Life(path, seed)
    check(life, True, ["built"])
    said = []
    for _ in range(steps):
        step = life.live()
        said.append(step.__name__)
        check(life, step is Life.rebuild, (seed, said))


@pytest.mark.parametrize("seed", range(4))
def test_queries_match_the_texts(tmp_path, seed):
    live_once(str(tmp_path / "table.lance"), seed, 7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_queries_match_the_texts_in_many_lives(tmp_path, seed):
    live_once(str(tmp_path / "table.lance"), seed, 10)

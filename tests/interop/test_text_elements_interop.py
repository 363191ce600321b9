"""Elements of lists as documents, beside pylance: both find the same in what either wrote.

Goal: through appends, deletes, updates, compaction and upkeep by either side, the same elements
come from both, at the same places and with scores that agree. Method: random lives, each after
every step asked by both.
"""

import random

import lance
import lance.query
import pyarrow as pa
import pytest

import lancelet
import lancelet.query

WORDS = ["red", "fox", "dog", "cat", "owl", "elk"]
PLAIN = {"stem": False, "remove_stop_words": False, "with_position": True}
SIDES = (lancelet, lance)


class Life:
    def __init__(self, path, seed):
        self.chance, self.path, self.next_id = random.Random(seed), path, 0
        self.options = self.chance.choice([{}, {"format_version": 1}, {"format_version": 3}])
        self.is_nested = self.chance.random() < 0.4
        self.column = "docs.text" if self.is_nested else "tags"
        lancelet.write_dataset(
            self.rows(60),
            path,
            max_rows_per_file=self.chance.choice([20, 100]),
            enable_stable_row_ids=self.chance.random() < 0.5,
        )
        self.build()

    def side(self):
        return self.chance.choice(SIDES)

    def text(self):
        own = (" ".join(self.chance.choices(WORDS, k=count)) for count in (1, 3, 6))
        return self.chance.choice([None, "", "!", *own])

    def rows(self, count):
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        lists = [
            None if self.chance.random() < 0.1 else [self.text() for _ in range(each % 4)]
            for each in ids
        ]
        if not self.is_nested:
            return pa.table({"id": ids, "tags": pa.array(lists, pa.list_(pa.string()))})
        docs = [None if own is None else [{"text": each} for each in own] for own in lists]
        data_type = pa.list_(pa.struct([("text", pa.string())]))
        return pa.table({"id": ids, "docs": pa.array(docs, data_type)})

    def build(self):
        side = self.builder = self.side()
        side.dataset(self.path).create_scalar_index(
            self.column,
            "INVERTED",
            document_granularity=side.query.DocumentGranularity.LIST_ELEMENT,
            **PLAIN,
            **self.options,
        )

    def append(self):
        self.side().write_dataset(self.rows(self.chance.choice([1, 15])), self.path, mode="append")

    def delete(self):
        self.side().dataset(self.path).delete(f"id % 7 = {self.chance.randint(0, 6)}")

    def update(self):
        rows = self.rows(3)
        self.next_id -= 3
        keys = pa.array(sorted(self.chance.sample(range(self.next_id), 3)), pa.int64())
        merge = self.side().dataset(self.path).merge_insert("id").when_matched_update_all()
        merge.execute(rows.set_column(0, "id", keys))

    def compact(self):
        self.side().dataset(self.path).optimize.compact_files(target_rows_per_fragment=1000)

    def optimize(self):
        side, merged = self.side(), self.chance.choice([0, 1, 5])
        side.dataset(self.path).optimize.optimize_indices(num_indices_to_merge=merged)

    STEPS = (append, append, delete, update, compact, optimize, optimize, build)

    def found(self, side, make, **options):
        query = make(side.query, side.query.DocumentGranularity.LIST_ELEMENT, self.column)
        table = side.dataset(self.path).to_table(columns=["id"], full_text_query=query, **options)
        return [((row["id"], *row["_doc_index"]), row["_score"]) for row in table.to_pylist()]

    def elements(self):
        for row in lancelet.dataset(self.path).to_table().to_pylist():
            for place, own in enumerate(row[self.column.split(".")[0]] or []):
                text = own["text"] if self.is_nested else own
                yield (row["id"], place), text or ""

    def agree(self):
        elements = dict(self.elements())
        for matches, make in QUERIES:
            wanted = {each for each, text in elements.items() if matches(text)}
            ours, theirs = (self.found(side, make) for side in SIDES)
            assert sorted(each for each, _ in ours) == sorted(wanted)
            check_scores(ours, theirs, wanted)
            fast = [self.found(side, make, fast_search=True) for side in SIDES]
            check_scores(*fast, wanted)


def check_scores(ours, theirs, wanted):
    """Where rows keep their ids the reference finds elements too as they were before an update."""
    for each, score in ours:
        assert any(key == each and own == pytest.approx(score, rel=1e-5) for key, own in theirs)
    assert {each for each, _ in theirs} & wanted <= {each for each, _ in ours}


QUERIES = (
    (
        lambda text: "fox" in text,
        lambda q, by, column: q.MatchQuery("fox", column, document_granularity=by),
    ),
    (
        lambda text: "red" in text or "owl" in text,
        lambda q, by, column: q.MatchQuery("red owl", column, document_granularity=by),
    ),
    (
        lambda text: "dog cat" in text,
        lambda q, by, column: q.PhraseQuery("dog cat", column, document_granularity=by),
    ),
    (
        lambda text: "elk" in text and "red" in text,
        lambda q, by, column: (
            q.MatchQuery("elk", column, document_granularity=by)
            & q.MatchQuery("red", column, document_granularity=by)
        ),
    ),
)


@pytest.mark.parametrize("seed", range(6))
def test_both_find_the_same_elements_through_random_lives(tmp_path, seed):
    life = Life(str(tmp_path / "table.lance"), seed)
    life.agree()
    for _ in range(5):
        life.chance.choice(Life.STEPS)(life)
        life.agree()


@pytest.mark.parametrize("builder", SIDES)
def test_both_describe_an_index_by_element_equally(tmp_path, builder):
    """Its name, its version and what its metadata say; a version of 3 keeps old readers away."""
    path = str(tmp_path / "table.lance")
    table = pa.table({"id": [0, 1], "tags": [["red fox", None, ""], ["dog"]]})
    builder.write_dataset(table, path).create_scalar_index(
        "tags", "INVERTED", document_granularity=builder.query.DocumentGranularity.LIST_ELEMENT
    )
    (ours,) = lancelet.dataset(path).describe_indices()
    (theirs,) = lance.dataset(path).describe_indices()
    assert ours.name == theirs.name == "tags_list_element_idx"
    assert ours.segments[0].index_version == theirs.segments[0].index_version == 3
    assert ours.details == theirs.details
    assert ours.details["document_granularity"] == "list_element"
    documents = [
        side.dataset(path).stats.index_stats(ours.name)["indices"][0]["num_docs"] for side in SIDES
    ]
    assert documents == [4, 4]
    rows = lancelet.query.DocumentGranularity.ROW
    query = lancelet.query.MatchQuery("fox", "tags", document_granularity=rows)
    with pytest.raises(ValueError, match=r"requested Row.*ListElement"):
        lancelet.dataset(path).to_table(full_text_query=query)

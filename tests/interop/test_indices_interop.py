"""Filters over indexed columns, in both implementations, on tables that were changed since.

Goal: an index never changes which rows a filter returns. Method: one random table, indexed by one
implementation and changed by ours, is asked random predicates; both implementations must return
the rows that evaluating the predicate over the plain table gives.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, event, given

import lancelet
from lancelet.expr import expression as ex
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate
from lancelet.expr.traversal import walk
from tests.kit.expressions import PREDICATES, random_batch

pytestmark = pytest.mark.interop

ORDERED = ("i", "u", "n", "f", "d", "s", "b", "day", "ts", "st.x", "st.y")
KINDS = {
    "BTREE": ORDERED,
    "BITMAP": ORDERED,
    "LABEL_LIST": ("l",),
    "ZONEMAP": ORDERED,
    "BLOOMFILTER": ("i", "u", "n", "f", "s", "day", "ts", "st.x", "st.y"),
}
REFUSED = (ValueError, OSError, RuntimeError, NotImplementedError)


@dataclass
class Indexed:
    """A table with indices, and the rows that are in it."""

    rows: pa.RecordBatch
    path: str


def random_rows(first, count, seed):
    batch = random_batch(count, seed=seed)
    # The reference tells -0.0 from 0.0 between columns, but not beside a constant.
    floats = pc.add(batch["f"], 0.0)
    batch = batch.set_column(batch.schema.names.index("f"), "f", floats)
    return pa.Table.from_batches([batch]).append_column(
        "row", pa.array(range(first, first + count))
    )


def build(path, kind, writer, change):
    rows = random_rows(0, 240, seed=3)
    writer = WRITERS[writer]
    stable = "stable" in change
    writer.write_dataset(rows, path, max_rows_per_file=70, enable_stable_row_ids=stable)
    dataset = writer.dataset(path)
    for column in KINDS[kind]:
        dataset.create_scalar_index(column, kind)
    ours = lancelet.dataset(path)
    if "delete" in change:
        ours.delete("row % 3 = 1")
        rows = rows.filter(pa.array([row % 3 != 1 for row in range(len(rows))]))
    if "append" in change:
        more = random_rows(1000, 50, seed=4)
        lancelet.write_dataset(more, path, mode="append")
        rows = pa.concat_tables([rows, more])
    return Indexed(rows.combine_chunks().to_batches()[0], path)


CHANGES = {
    "lancelet": ("fresh", "delete append", "stable delete append"),
    "lance": ("delete append", "stable delete append"),
}
CASES = [
    (kind, writer, change)
    for kind in KINDS
    for writer, changes in CHANGES.items()
    for change in changes
]
OURS = [case for case in CASES if case[1] == "lancelet"]
WRITERS = {"lancelet": lancelet, "lance": lance}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory) -> Callable[..., Indexed]:
    @functools.cache
    def make(case) -> Indexed:
        return build(str(tmp_path_factory.mktemp("indices") / "table.lance"), *case)

    return make


def expected_rows(batch, text):
    truth = evaluate(compile_filter(text, batch.schema), batch)
    return batch.filter(truth)["row"].to_pylist()


def has_contradicting_lists(predicate):
    """Whether the reference would make `x IN (1) AND x IN (2)` false, even where x is null."""
    return any(
        isinstance(node, ex.And | ex.Or)
        and sum(isinstance(inner, ex.In) for inner in walk(node)) > 1
        for node in walk(predicate)
    )


def negates_is_true(predicate):
    """Whether the reference would omit null rows, as in `NOT (b IS TRUE)` with any index on b."""
    return any(
        isinstance(node, ex.Not) and any(isinstance(inner, ex.IsTrue) for inner in walk(node))
        for node in walk(predicate)
    )


@pytest.mark.parametrize("case", CASES, ids=str)
@given(predicate=PREDICATES)
def test_indices_change_no_answer_of_ours(indexed, case, predicate):
    table = indexed(case)
    text = str(predicate)
    dataset = lancelet.dataset(table.path)
    found = dataset.to_table(columns=["row"], filter=text)["row"].to_pylist()
    assert sorted(found) == sorted(expected_rows(table.rows, text))
    assert dataset.count_rows(text) == len(found)


@pytest.mark.parametrize("case", OURS, ids=str)
@given(predicate=PREDICATES)
def test_the_reference_answers_through_our_indices(indexed, case, predicate):
    assume(not has_contradicting_lists(predicate))
    assume(not negates_is_true(predicate))
    table = indexed(case)
    text = str(predicate)
    try:
        scanned = (
            lance.dataset(table.path)
            .to_table(columns=["row"], filter=text, use_scalar_index=False)["row"]
            .to_pylist()
        )
        found = lance.dataset(table.path).to_table(columns=["row"], filter=text)["row"].to_pylist()
    except REFUSED:
        event("refused by the reference")
        return
    assert sorted(found) == sorted(scanned)

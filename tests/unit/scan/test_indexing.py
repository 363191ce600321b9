"""The use of indices in scans, rechecks of their rows, and broken indices."""

import warnings
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.publish import publish
from lancelet.format.index_metadata import AnyDetails
from lancelet.format.operation import CreateIndex
from lancelet.index.scalar.btree.search import BTreeSegment
from lancelet.scan.indexing.choose import IndexLookup, choose_parts
from lancelet.scan.indexing.search import find_candidates
from lancelet.scan.indexing.segments import IndexUnusableWarning
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions


@pytest.fixture
def dataset(tmp_path):
    table = pa.table({"a": [*range(100)], "b": [index % 10 for index in range(100)]})
    dataset = lancelet.write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=40)
    dataset.create_scalar_index("a", "BTREE")
    return dataset


def candidates(dataset, text, **options):
    return find_candidates(plan_scan(dataset.snapshot, ScanOptions(filter=text, **options)))


def test_rows_matched_by_an_index_are_not_rechecked(dataset):
    found = candidates(dataset, "a < 3")
    assert found.rows.addresses({}).tolist() == [0, 1, 2]
    assert found.steps == ()
    assert found.covered == {0, 1, 2}


def test_the_rest_of_a_filter_is_left(dataset):
    found = candidates(dataset, "a < 3 AND b = 1")
    assert [str(step.expression) for step in found.steps] == ["b = 1"]


def test_a_part_that_only_an_index_and_a_column_decide_together_is_left_whole(dataset):
    found = candidates(dataset, "a < 3 AND (a = 1 OR b = 0)")
    assert [str(step.expression) for step in found.steps] == ["a = 1 OR b = 0"]


def test_unindexed_fragments_are_scanned_by_default(dataset):
    dataset.insert(pa.table({"a": [1], "b": [5]}))
    assert candidates(dataset, "a = 1").covered == {0, 1, 2}
    assert dataset.to_table(filter="a = 1")["b"].to_pylist() == [1, 5]
    assert dataset.to_table(filter="a = 1", fast_search=True)["b"].to_pylist() == [1]


def test_a_fast_search_omits_the_same_rows_for_any_index_cost(tmp_path):
    dataset = lancelet.write_dataset(pa.table({"a": range(40_000)}), str(tmp_path / "large"))
    dataset.create_scalar_index("a", "BTREE")
    dataset.insert(pa.table({"a": [50_000]}))
    assert candidates(dataset, "a > 5") is None
    assert dataset.to_table(filter="a > 5", fast_search=True).num_rows == 39_994
    assert dataset.count_rows("a > 5") == 39_995


@pytest.mark.parametrize("text", ["b = 1", "a + 1 = 3", "a = 1 OR b = 1"])
def test_filters_that_indices_cannot_narrow_are_scanned(dataset, text):
    assert candidates(dataset, text) is None


def test_indices_are_left_alone_on_request(dataset):
    assert candidates(dataset, "a = 1", use_indices=False) is None


def test_an_index_whose_files_are_gone_is_warned_about_and_not_missed(dataset, tmp_path):
    for file in (tmp_path / "t.lance" / "_indices").glob("*/page_lookup.lance"):
        file.unlink()
    again = lancelet.dataset(str(tmp_path / "t.lance"))
    with pytest.warns(IndexUnusableWarning, match="drop and rebuild it"):
        found = again.to_table(filter="a = 7")
    assert found["a"].to_pylist() == [7]


def test_an_index_that_breaks_while_it_is_searched_is_warned_about(dataset, tmp_path):
    for file in (tmp_path / "t.lance" / "_indices").glob("*/page_data.lance"):
        data = bytearray(file.read_bytes())
        data[:64] = bytes(64)
        file.write_bytes(data)
    again = lancelet.dataset(str(tmp_path / "t.lance"))
    with pytest.warns(IndexUnusableWarning):
        assert again.to_table(filter="a = 7")["a"].to_pylist() == [7]


def test_an_index_of_unknown_kind_is_preserved_with_one_warning(dataset):
    (index,) = dataset.snapshot.indices.indices
    unknown = replace(index, details=AnyDetails("/lance.table.QuantumIndexDetails", b"\x01"))
    dataset._handle.snapshot = publish(dataset.snapshot, CreateIndex((unknown,), (index,)))
    with pytest.warns(IndexUnusableWarning, match="this release does not support"):
        dataset.to_table(filter="a = 7")
    assert dataset.to_table(filter="a = 7")["a"].to_pylist() == [7]
    dataset.insert(pa.table({"a": [1], "b": [5]}))
    dataset.delete("a = 3")
    dataset.update({"b": "1"}, where="a = 5")
    dataset.optimize.optimize_indices()
    (kept,) = dataset.snapshot.indices.indices
    assert kept == unknown
    assert dataset.describe_indices()[0].index_type == "Quantum"


def test_only_indices_of_columns_in_a_filter_are_opened(dataset, tmp_path):
    dataset.create_scalar_index("b", "BITMAP")
    for file in (tmp_path / "t.lance" / "_indices").glob("*/bitmap_page_lookup.lance"):
        file.unlink()
    again = lancelet.dataset(str(tmp_path / "t.lance"))
    assert again.to_table(filter="a = 7")["a"].to_pylist() == [7]
    with pytest.warns(IndexUnusableWarning):
        again.to_table(filter="b = 7")


def test_the_plan_shows_the_index_query(dataset):
    plan = dataset.scanner(filter="a = 7").explain_plan()
    assert "ScalarIndexQuery: query=[a = 7]@a_idx" in plan


def test_a_requested_text_is_shown_as_by_the_reference(tmp_path):
    uri = str(tmp_path / "texts.lance")
    dataset = lancelet.write_dataset(pa.table({"t": ["a red fox", "a dog"]}), uri)
    dataset.create_scalar_index("t", "NGRAM")
    scanners = [
        each.dataset(uri).scanner(filter="contains(t, 'red')") for each in (lancelet, lance)
    ]
    shown = '[contains(t, Utf8("red"))]@t_idx(NGram)'
    assert [shown in scanner.explain_plan() for scanner in scanners] == [True, True]


def test_false_values_are_found(dataset):
    found = candidates(dataset, "NOT (a = 1) AND a < 4")
    assert found.rows.addresses({}).tolist() == [0, 2, 3]
    assert found.steps == ()


def test_bounds_of_one_column_are_queried_together(dataset):
    plan = plan_scan(dataset.snapshot, ScanOptions(filter="a > 3 AND b = 1 AND a < 12"))
    (part,) = choose_parts(plan)
    assert isinstance(part.part, IndexLookup)
    interval = part.part.query
    assert (interval.lower.as_py(), interval.upper.as_py()) == (3, 12)


def test_a_list_with_a_null_is_false_for_nothing(dataset):
    assert candidates(dataset, "NOT (a IN (1, NULL))").rows.num_listed == 0


def test_the_most_selective_index_is_used(dataset):
    dataset.create_scalar_index("a", "ZONEMAP", name="zones")
    assert candidates(dataset, "a = 1").used[0][0] == "a_idx"
    dataset.insert(pa.table({"a": [*range(200, 700)], "b": [0] * 500}))
    dataset.create_scalar_index("a", "BTREE", name="later")
    assert candidates(dataset, "a = 1").used[0][0] == "later"


def test_a_row_after_the_end_of_its_fragment_is_a_corrupt_index(dataset, monkeypatch):
    monkeypatch.setattr(BTreeSegment, "_search_numbers", lambda *_: np.array([4711], np.uint64))
    with pytest.warns(IndexUnusableWarning, match="out of range"):
        assert dataset.to_table(filter="a = 7")["a"].to_pylist() == [7]


def test_rows_are_counted_by_bounds_unless_some_are_deleted(dataset, monkeypatch):
    monkeypatch.setattr(BTreeSegment, "_ids", lambda *_: pytest.fail("rows were looked up"))
    assert dataset.count_rows("a >= 10 AND a < 30") == 20
    assert dataset.count_rows("a IN (1, 2, 2, 500)") == 2
    assert dataset.count_rows("NOT (a IN (1, 2))") == 98
    monkeypatch.undo()
    dataset.delete("a = 20")
    assert dataset.count_rows("a >= 10 AND a < 30") == 19


def test_counting_reads_no_column(dataset):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataset.count_rows("a >= 10 AND a < 30") == 20


def test_dropping_an_index_forgets_it(dataset):
    dataset.drop_index("a_idx")
    assert not dataset.has_index
    assert candidates(dataset, "a = 1") is None


def test_listings_describe_indices(dataset):
    with pytest.warns(DeprecationWarning, match="describe_indices"):
        (listed,) = dataset.list_indices()
    assert (listed["name"], listed["type"], listed["fields"]) == ("a_idx", "BTree", ["a"])
    (described,) = dataset.describe_indices()
    assert (described.num_rows_indexed, len(described.segments)) == (100, 1)
    dataset.insert(pa.table({"a": [1], "b": [5]}))
    statistics = dataset.stats.index_stats("a_idx")
    assert (statistics["num_indexed_rows"], statistics["num_unindexed_rows"]) == (100, 1)
    with pytest.warns(DeprecationWarning, match="index_stats"):
        assert dataset.index_statistics("a_idx") == statistics


def test_names_are_checked(dataset):
    with pytest.raises(KeyError):
        dataset.create_scalar_index("zz", "BTREE")
    with pytest.raises(NotImplementedError):
        dataset.create_scalar_index("a", "XX")
    with pytest.raises(RuntimeError, match="already exists"):
        dataset.create_scalar_index("a", "BTREE", replace=False)
    with pytest.raises(RuntimeError):
        dataset.drop_index("nope")
    with pytest.raises(KeyError):
        dataset.stats.index_stats("nope")


def test_row_ids_that_an_index_knows_are_read_from_no_data_file(tmp_path):
    uri = tmp_path / "t"
    dataset = lancelet.write_dataset(pa.table({"id": range(3000)}), uri)
    dataset.create_scalar_index("id", "BTREE")
    for each in (uri / "data").iterdir():
        each.unlink()
    found = lancelet.dataset(uri).to_table(columns=["_rowid"], filter="id BETWEEN 100 AND 160")
    assert found["_rowid"].to_pylist() == list(range(100, 161))


@pytest.mark.parametrize(
    ("pattern", "is_exact"),
    [
        ("%ab%", True),
        ("%%ab%%", True),
        ("%a!%b%", True),
        ("%ab", False),
        ("ab_%", False),
        ("%a_b%", False),
        ("%ab%c%", False),
    ],
)
def test_rows_of_a_text_index_are_rechecked_with_unsupported_conditions(
    tmp_path, pattern, is_exact
):
    texts = ["abc", "cab", "ab", "acb", "zz", "a%b", "abxc", None]
    dataset = lancelet.write_dataset(pa.table({"t": texts}), tmp_path / "t.lance")
    condition = f"t LIKE '{pattern}' ESCAPE '!'"
    scanned = dataset.to_table(filter=condition)["t"].to_pylist()
    dataset.create_scalar_index("t", "FM")
    assert bool(candidates(dataset, condition).steps) != is_exact
    assert dataset.to_table(filter=condition)["t"].to_pylist() == scanned
    assert candidates(dataset, f"NOT ({condition})") is None
    dataset.delete(condition)
    assert dataset.to_table()["t"].to_pylist() == [each for each in texts if each not in scanned]

"""Indices on branches, on clones, and of columns that are renamed, cast or dropped.

Goal: an index answers wherever its table is looked at, and never for a column that it is not of.
Method: after each step both implementations ask with the index and without.
"""

import lance
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop

KINDS = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")


def rows(first, count):
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "a": pa.array([None if i % 11 == 0 else i % 40 for i in numbers], pa.int32()),
        }
    )


def check(ours, theirs, column="a", *, is_indexed=True):
    for text in (f"{column} = 7", f"{column} IS NULL", f"{column} IN (3, 9, 41)", f"{column} > 35"):
        expected = ours.to_table(["id"], filter=text, use_scalar_index=False)
        assert ours.to_table(["id"], filter=text) == expected, text
        found = sorted(theirs.to_table(["id"], filter=text)["id"].to_pylist())
        assert found == sorted(expected["id"].to_pylist()), text
    plan = ours.scanner(filter=f"{column} = 7", columns=["id"]).explain_plan()
    assert ("ScalarIndexQuery" in plan) == is_indexed


@pytest.fixture(params=[(kind, stable) for kind in KINDS for stable in (False, True)], ids=str)
def dataset(tmp_path, request):
    kind, stable = request.param
    path = str(tmp_path / "t.lance")
    made = lancelet.write_dataset(
        rows(0, 200), path, max_rows_per_file=70, enable_stable_row_ids=stable
    )
    made.create_scalar_index("a", kind)
    return made


def test_an_index_update_on_a_branch_does_not_affect_main(dataset):
    def both(branch):
        reference = (branch, None)
        return (
            lancelet.dataset(dataset.uri).checkout_version(reference),
            lance.dataset(dataset.uri).checkout_version(reference),
        )

    dataset.create_branch("side")
    check(*both("side"))
    ours, _ = both("side")
    ours.delete("id % 6 = 1")
    ours.insert(rows(300, 40))
    check(*both("side"))
    both("side")[0].optimize.optimize_indices()
    check(*both("side"))
    assert both("side")[0].stats.index_stats("a_idx")["num_unindexed_rows"] == 0
    both("side")[0].optimize.compact_files(target_rows_per_fragment=500)
    ours, theirs = both("side")
    check(ours, theirs, is_indexed=ours.stats.index_stats("a_idx")["num_indexed_fragments"] > 0)
    trunk = lancelet.dataset(dataset.uri)
    check(trunk, lance.dataset(dataset.uri))
    assert trunk.count_rows() == 200


@pytest.mark.parametrize("how", ["shallow_clone", "deep_clone"])
def test_an_index_answers_for_a_clone_and_evolves_separately(dataset, tmp_path, how):
    path = str(tmp_path / "clone.lance")
    getattr(dataset, how)(path, dataset.version)
    check(lancelet.dataset(path), lance.dataset(path))
    lancelet.dataset(path).insert(rows(400, 30))
    lancelet.dataset(path).delete("id % 7 = 3")
    check(lancelet.dataset(path), lance.dataset(path))
    lancelet.dataset(path).optimize.optimize_indices()
    check(lancelet.dataset(path), lance.dataset(path))
    check(lancelet.dataset(dataset.uri), lance.dataset(dataset.uri))


def test_an_index_follows_a_column_that_is_renamed(dataset):
    dataset.alter_columns({"path": "a", "name": "b"})
    check(lancelet.dataset(dataset.uri), lance.dataset(dataset.uri), "b")
    dataset.insert(rows(300, 20).rename_columns(["id", "b"]))
    dataset.optimize.optimize_indices()
    check(lancelet.dataset(dataset.uri), lance.dataset(dataset.uri), "b")


def test_a_column_is_cast_once_its_index_is_dropped_and_indexed_again(dataset):
    for table in (dataset, lance.dataset(dataset.uri)):
        with pytest.raises((ValueError, OSError, RuntimeError), match="index"):
            table.alter_columns({"path": "a", "data_type": pa.int64()})
    kind = dataset.describe_indices()[0].index_type
    dataset.drop_index("a_idx")
    dataset.alter_columns({"path": "a", "data_type": pa.int64()})
    check(lancelet.dataset(dataset.uri), lance.dataset(dataset.uri), is_indexed=False)
    dataset.create_scalar_index("a", kind.upper())
    check(lancelet.dataset(dataset.uri), lance.dataset(dataset.uri))


def test_an_index_goes_with_its_column_and_not_with_another(dataset):
    dataset.create_scalar_index("id", "BTREE")
    dataset.drop_columns(["id"])
    listed = [each.name for each in lancelet.dataset(dataset.uri).describe_indices()]
    assert listed == ["a_idx"]
    expected = dataset.to_table(filter="a = 7", use_scalar_index=False)
    assert lancelet.dataset(dataset.uri).to_table(filter="a = 7") == expected
    assert lance.dataset(dataset.uri).to_table(filter="a = 7") == expected
    dataset.add_columns({"id": "cast(a as bigint)"})
    plan = lancelet.dataset(dataset.uri).scanner(filter="id = 7").explain_plan()
    assert "ScalarIndexQuery" not in plan

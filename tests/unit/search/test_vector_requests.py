"""Invalid vector searches, and results for empty tables."""

import lance as reference
import numpy as np
import pyarrow as pa
import pytest

import lancelet

DIMENSION = 16


def table(count, **columns):
    values = np.random.default_rng(5).normal(size=count * DIMENSION).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSION)
    return pa.table({"id": range(count), "v": vectors, **columns})


def nearest(dataset, query, **options):
    wanted = {"column": "v", "q": query, "k": 3}
    return dataset.to_table(columns=["id", "_distance"], nearest=wanted, **options)


def test_the_column_of_queries_is_never_null(tmp_path):
    dataset = lancelet.write_dataset(table(9), str(tmp_path))
    found = nearest(dataset, np.zeros((2, DIMENSION), np.float32))
    assert found.schema.field("query_index").equals(pa.field("query_index", pa.int32(), False))


def test_a_column_cannot_be_named_query_index(tmp_path):
    dataset = lancelet.write_dataset(table(9, query_index=range(9)), str(tmp_path))
    queries = np.zeros((2, DIMENSION), np.float32)
    for each in (dataset, reference.dataset(str(tmp_path))):
        with pytest.raises(ValueError, match="query_index"):
            nearest(each, queries)
    assert nearest(dataset, queries[0]).num_rows == 3


def test_a_measured_plan_has_the_number_of_examined_rows(tmp_path):
    ours = lancelet.write_dataset(table(20), str(tmp_path))
    ours.delete("id = 0")
    wanted = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 3}
    for each in (ours, reference.dataset(str(tmp_path))):
        plan = each.scanner(columns=["id"], nearest=wanted).analyze_plan()
        *_, first = (line for line in plan.splitlines() if "LanceRead" in line)
        assert "output_rows=20" in first


def test_a_fast_search_without_an_index_finds_nothing(tmp_path):
    dataset = lancelet.write_dataset(table(9), str(tmp_path))
    for each in (dataset, reference.dataset(str(tmp_path))):
        assert nearest(each, np.zeros(DIMENSION, np.float32), fast_search=True).num_rows == 0


def test_partitions_are_as_many_as_requested_or_as_rows(tmp_path):
    cases = (("IVF_FLAT", 100, 8), ("IVF_SQ", 5, 5), ("IVF_PQ", 600, 2))
    for kind, count, expected in cases:
        options = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
        for each in (lancelet, reference):
            dataset = each.write_dataset(table(count), str(tmp_path), mode="overwrite")
            dataset.create_index("v", kind, num_partitions=8, replace=True, **options)
            (segment,) = dataset.stats.index_stats("v_idx")["indices"]
            assert len(segment["partitions"]) == expected, (kind, each)


@pytest.mark.parametrize("bits", [1, 5])
@pytest.mark.parametrize("writer", [lancelet, reference])
def test_codes_of_rq_that_are_not_packed_are_read_by_both(tmp_path, writer, bits):
    path = str(tmp_path)
    writer.write_dataset(table(600), path).create_index(
        "v", "IVF_RQ", num_partitions=2, num_bits=bits, skip_transpose=True
    )
    query = np.random.default_rng(1).normal(size=DIMENSION).astype(np.float32)
    own, other = (nearest(each.dataset(path), query) for each in (lancelet, reference))
    # The reference turns vectors at random, and each sums its estimates in steps of its own (at
    # most 0.12 apart in 200 tables), so near ties may change places: distances are compared, which
    # are wrong by units where codes are read in the wrong order.
    np.testing.assert_allclose(own["_distance"], other["_distance"], atol=0.3)
    found = [dict(zip(*each.to_pydict().values(), strict=True)) for each in (own, other)]
    nearest_of_both = {min(each, key=each.get) for each in found}
    assert nearest_of_both <= found[0].keys() & found[1].keys()
    assert all(abs(found[0][each] - found[1][each]) < 0.3 for each in nearest_of_both)


def test_rows_that_cannot_be_compared_are_counted(tmp_path):
    vectors = np.random.default_rng(5).normal(size=(300, DIMENSION)).astype(np.float32)
    vectors[7, 3], vectors[9, 0], vectors[11, 1] = np.nan, np.inf, -np.inf
    column = pa.array([None, *vectors.tolist()], pa.list_(pa.float32(), DIMENSION))
    dataset = lancelet.write_dataset(pa.table({"v": column}), str(tmp_path))

    def left_out():
        (segment,) = dataset.stats.index_stats("v_idx")["indices"]
        return segment.get("num_rows_left_out")

    dataset.create_index("v", "IVF_SQ", num_partitions=2)
    assert left_out() == 4
    dataset.insert(pa.table({"v": column.slice(0, 10)}))
    dataset.optimize.optimize_indices()
    assert left_out() == 6
    reference.dataset(str(tmp_path)).create_index("v", "IVF_SQ", num_partitions=2, replace=True)
    dataset = lancelet.dataset(str(tmp_path))
    assert left_out() is None


def test_only_segments_that_were_chosen_are_searched(tmp_path):
    path = str(tmp_path)
    dataset = lancelet.write_dataset(table(30), path)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.insert(table(40))
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    dataset.insert(table(5))
    ids = [each.uuid for each in dataset.describe_indices()[0].segments]
    wanted = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 100, "nprobes": 2}
    for module in (lancelet, reference):
        opened = module.dataset(path)

        def found(chosen, opened=opened):
            return opened.scanner(nearest=wanted, index_segments=chosen).to_table().num_rows

        assert [found([each]) for each in ids] == [30, 40]
        assert found(ids) == 70
        for wrong in ([], ["00000000-0000-0000-0000-000000000000"]):
            with pytest.raises(ValueError, match="with_index_segments"):
                found(wrong)
        with pytest.raises(ValueError, match="only supported for vector search"):
            opened.scanner(filter="id > 3", index_segments=ids).to_table()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"distance_range": (1, 2, 3)}, r"must be a tuple of \(lower_bound, upper_bound\)"),
        ({"distance_range": 2.0}, r"must be a tuple of \(lower_bound, upper_bound\)"),
        ({"q": np.zeros((0, DIMENSION), np.float32)}, "at least one query vector"),
        ({"q": []}, "at least one query vector"),
    ],
)
def test_input_that_cannot_be_searched_for_is_rejected(tmp_path, wrong, message):
    dataset = lancelet.write_dataset(table(5), str(tmp_path))
    wanted = {"column": "v", "q": np.zeros(DIMENSION, np.float32), **wrong}
    with pytest.raises(ValueError, match=message):
        dataset.to_table(nearest=wanted)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"q": None}, TypeError),
        ({"q": 3.0}, TypeError),
        ({"q": "abc"}, TypeError),
        ({"q": np.zeros((2, 2, DIMENSION))}, ValueError),
        ({"q": [[0.0] * DIMENSION, [0.0]]}, ValueError),
        ({"q": np.zeros(DIMENSION - 1)}, ValueError),
        ({"k": 0}, ValueError),
        ({"k": 2.5}, TypeError),
        ({"nprobes": 0}, ValueError),
        ({"refine_factor": 0}, ValueError),
        ({"ef": 0}, ValueError),
        ({"metric": 3}, ValueError),
        ({"metric": "manhattan"}, ValueError),
        ({"distance_range": (1,)}, ValueError),
        ({"distance_range": ("a", "b")}, TypeError),
    ],
    ids=str,
)
def test_a_search_that_means_nothing_is_rejected_as_the_reference_does(tmp_path, wanted, error):
    lancelet.write_dataset(table(9), str(tmp_path))
    asked = {"column": "v", "q": np.zeros(DIMENSION, np.float32), **wanted}
    for each in (lancelet, reference):
        with pytest.raises(error):
            each.dataset(str(tmp_path)).to_table(nearest=asked)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ"])
def test_a_large_limit_finds_all_rows(tmp_path, kind):
    dataset = lancelet.write_dataset(table(600), str(tmp_path))
    options = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    dataset.create_index("v", kind, num_partitions=3, **options)
    query = np.zeros(DIMENSION, np.float32)
    for wanted in ({"k": 2**70}, {"k": 7, "refine_factor": 2**70}):
        found = dataset.to_table(columns=["id"], nearest={"column": "v", "q": query, **wanted})
        assert found.num_rows == min(wanted["k"], 600)

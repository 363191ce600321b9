"""Large partitions are split and small ones are joined, with unchanged results."""

import lance as reference
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.upkeep.check import Severity

DIMENSION = 16
KINDS = {
    "IVF_FLAT": {},
    "IVF_PQ": {"num_sub_vectors": 4},
    "IVF_SQ": {},
    "IVF_RQ": {"num_bits": 4},
    "IVF_HNSW_SQ": {},
}


def rows(first, count, *, around, seed):
    random = np.random.default_rng(seed)
    vectors = (around + random.normal(size=(count, DIMENSION))).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), DIMENSION)
    return pa.table({"id": range(first, first + count), "v": column})


def sizes(dataset):
    (segment,) = dataset.stats.index_stats("v_idx")["indices"]
    return sorted(each["size"] for each in segment["partitions"])


def nearest(dataset, query, **options):
    wanted = {"column": "v", "q": query, "k": 12, **options}
    return dataset.to_table(columns=["id"], nearest=wanted)["id"].to_pylist()


def assert_valid(path, metric):
    dataset = lancelet.dataset(path)
    for seed in range(3):
        query = np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32) + seed * 4
        exact = nearest(dataset, query, use_index=False, metric=metric)
        options = {"nprobes": 100, "refine_factor": 30, "metric": metric}
        assert nearest(dataset, query, **options) == exact
        assert nearest(reference.dataset(path), query, **options) == exact
    errors = [each for each in dataset.check("indices") if each.severity is Severity.ERROR]
    assert errors == []


@pytest.mark.parametrize(
    ("kind", "metric", "stable"),
    [*((kind, "l2", False) for kind in KINDS), ("IVF_PQ", "cosine", True)],
)
def test_partitions_are_split_and_joined(tmp_path, kind, metric, stable):
    path = str(tmp_path)
    table = pa.concat_tables([rows(0, 400, around=0, seed=1), rows(400, 400, around=8, seed=2)])
    dataset = lancelet.write_dataset(table, path, enable_stable_row_ids=stable)
    dataset.create_index("v", kind, metric=metric, target_partition_size=300, **KINDS[kind])
    assert len(sizes(dataset)) == 2
    dataset.insert(rows(800, 2500, around=8, seed=3))
    dataset.optimize.optimize_indices()
    found = sizes(dataset)
    assert sum(found) == 3300
    assert len(found) > 4
    assert max(found) <= 4 * 300
    assert_valid(path, metric)
    dataset.delete("id < 380")
    dataset.optimize.compact_files()
    dataset.insert(rows(5000, 10, around=8, seed=4))
    dataset.optimize.optimize_indices()
    left = sizes(lancelet.dataset(path))
    assert min(left) >= 75
    assert_valid(path, metric)


def test_partitions_that_were_requested_stay(tmp_path):
    path = str(tmp_path)
    dataset = lancelet.write_dataset(rows(0, 1100, around=0, seed=1), path)
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    dataset.insert(rows(1100, 20, around=0, seed=3))
    dataset.optimize.optimize_indices()
    assert len(sizes(dataset)) == 4

"""Laws of near hashes: the pairs connect just what comparing each with each connects."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.upkeep.duplicates.hashes import build_clusters, pairs_of_hashes
from lancelet.vector import (
    get_ivf_partition_info,
    hamming_clustering_for_ivf_partition,
    hamming_clustering_for_range,
    hamming_clustering_for_sample,
)


def clusters_by_hand(words, numbers, bits_max):
    groups = [{place} for place in range(len(words))]
    for left in range(len(words)):
        for right in range(left):
            if int(np.bitwise_count(words[left] ^ words[right]).sum()) <= bits_max:
                one = next(group for group in groups if left in group)
                other = next(group for group in groups if right in group)
                if one is not other:
                    groups.remove(other)
                    one |= other
    named = [sorted(numbers[place] for place in group) for group in groups if len(group) > 1]
    return [{"representative": each[0], "duplicates": each[1:]} for each in sorted(named)]


@given(
    st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=2), min_size=1, max_size=12),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_clusters_are_the_connected_components_of_pairs(rows, bits_max, random):
    words = np.array(rows, np.uint64)
    numbers = list(range(100, 100 + len(rows)))
    random.shuffle(numbers)
    found = build_clusters(
        np.array(numbers, np.uint64), pairs_of_hashes(words, bits_max)
    ).read_all()
    assert found.to_pylist() == clusters_by_hand(words, numbers, bits_max)


def hashes(rows):
    flat = pa.array([byte for row in rows for byte in row], pa.uint8())
    return pa.table({"h": pa.FixedSizeListArray.from_arrays(flat, 8)})


ZERO, NEAR, FAR = [0] * 8, [1] + [0] * 7, [255] * 8


@pytest.fixture
def dataset(tmp_path):
    rows = [ZERO, FAR, NEAR, ZERO, [240] * 8]
    return lancelet.write_dataset(hashes(rows * 60), tmp_path / "t", max_rows_per_file=150)


def test_rows_of_a_table_or_of_a_part_of_it_are_clustered(dataset):
    exact = hamming_clustering_for_sample(dataset, "h", hamming_threshold=0).read_all()
    assert exact["representative"].to_pylist() == [0, 1, 2, 4]
    assert pa.compute.sum(pa.compute.list_value_length(exact["duplicates"])).as_py() == 296
    near = hamming_clustering_for_range(dataset, "h", 1, 0, 4, 1).read_all().to_pylist()
    assert near == [{"representative": 1 << 32, "duplicates": [(1 << 32) + 2, (1 << 32) + 3]}]
    some = hamming_clustering_for_sample(dataset, "h", 10, 64).read_all()
    assert len(some) == 1
    assert len(some["duplicates"][0]) == 9


def test_partitions_of_an_index_are_clustered_without_deleted_rows(dataset):
    dataset.create_index("h", "IVF_FLAT", metric="hamming", num_partitions=2)
    dataset.delete("_rowid = 0")
    (name,) = [index.name for index in dataset.describe_indices()]
    found = []
    for part in get_ivf_partition_info(dataset, name):
        rows = hamming_clustering_for_ivf_partition(dataset, name, part["partition_id"], 0)
        found += rows.read_all().to_pylist()
    assert sorted(each["representative"] for each in found) == [1, 2, 3, 4]
    assert 0 not in {row for each in found for row in each["duplicates"]}
    with pytest.raises(InvalidInputError, match="out of range"):
        hamming_clustering_for_ivf_partition(dataset, name, 9, 0)


def test_columns_without_hashes_are_rejected(tmp_path):
    table = pa.table({"h": pa.array([[1] * 7], pa.list_(pa.uint8(), 7)), "n": [1]})
    other = lancelet.write_dataset(table, tmp_path / "u")
    for column in ("h", "n"):
        with pytest.raises(InvalidInputError, match="positive multiple of 8 bytes"):
            hamming_clustering_for_sample(other, column)
    with pytest.raises(InvalidInputError, match="not found"):
        hamming_clustering_for_sample(other, "missing")

"""Pairs of near vectors are those of pylance, in its order; clusters of hashes too."""

import uuid

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.vector import (
    find_duplicate_pairs,
    find_duplicate_pairs_in_partition,
    get_ivf_partition_info,
    hamming_clustering_for_sample,
)

CODED = {"num_sub_vectors": 4, "num_bits": 4}
KINDS = [
    *(("IVF_FLAT", metric, {}) for metric in ("l2", "cosine", "dot")),
    *(("IVF_SQ", metric, {}) for metric in ("l2", "cosine")),
    *(("IVF_PQ", metric, CODED) for metric in ("l2", "cosine", "dot")),
]


@pytest.fixture
def table():
    random = np.random.default_rng(1)
    base = random.normal(size=(60, 16))
    near = base[:30] + random.normal(size=(30, 16)) * 0.01
    vectors = np.concatenate([base, near, base[:5]]).astype(np.float32)
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 16)})


@pytest.mark.parametrize(("kind", "metric", "options"), KINDS)
def test_pairs_are_those_of_the_reference(tmp_path, table, kind, metric, options):
    theirs = lance.write_dataset(table, tmp_path / "t")
    theirs.create_index("v", kind, metric=metric, num_partitions=3, **options)
    theirs.delete("_rowid = 2")
    dataset = lancelet.dataset(tmp_path / "t")
    for limit in (0.05, 1.0):
        expected = theirs._ds.find_duplicate_pairs("v", limit).read_all()
        found = find_duplicate_pairs(dataset, "v", limit).read_all()
        assert found.schema == expected.schema
        assert found.select([0, 1]) == expected.select([0, 1])
        assert len(found)
        np.testing.assert_allclose(found["distance"], expected["distance"], atol=1e-5)
        (segment,) = dataset.describe_indices()[0].segments
        parts = [
            find_duplicate_pairs_in_partition(
                dataset, "v", segment.uuid, part["partition_id"], limit
            ).read_all()
            for part in get_ivf_partition_info(dataset, "v_idx")
        ]
        assert pa.concat_tables(parts) == found


def test_clusters_of_hashes_are_those_of_the_reference(tmp_path):
    random = np.random.default_rng(3)
    hashes = random.integers(0, 2, (200, 8), np.uint8)
    table = pa.table({"h": pa.FixedSizeListArray.from_arrays(hashes.reshape(-1), 8)})
    theirs = lance.write_dataset(table, tmp_path / "t")
    dataset = lancelet.dataset(tmp_path / "t")
    for bits in (0, 1, 3):
        expected = theirs._ds.hamming_clustering_for_sample("h", None, bits).read_all()
        found = hamming_clustering_for_sample(dataset, "h", None, bits).read_all()
        assert found == expected


def test_unsupported_indices_for_duplicates_are_rejected(tmp_path, table):
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    with pytest.raises(ValueError, match="no vector index"):
        find_duplicate_pairs(dataset, "v", 0.1)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.insert(table)
    with pytest.raises(ValueError, match="does not cover all fragments"):
        find_duplicate_pairs(dataset, "v", 0.1)
    with pytest.raises(ValueError, match="has the id"):
        find_duplicate_pairs_in_partition(dataset, "v", str(uuid.uuid4()), 0, 0.1)
    (segment,) = dataset.describe_indices()[0].segments
    with pytest.raises(ValueError, match="out of range"):
        find_duplicate_pairs_in_partition(dataset, "v", segment.uuid, 2, 0.1).read_all()

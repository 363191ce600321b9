"""Vector indices in parts: separately built segments, stored models, measured recall."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset import VectorIndexReader
from lancelet.errors import InvalidInputError
from lancelet.indices import IndicesBuilder, IvfModel, PqModel
from lancelet.upkeep.indexing.recall import METADATA_PREFIX, RecallDriftWarning
from lancelet.util import validate_vector_index
from lancelet.vector import get_ivf_partition_info, vec_to_table

DIMENSION = 8
ROWS = 1200


def vectors_of(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centers = random.normal(size=(8, DIMENSION)) * 4
    chosen = centers[random.integers(0, 8, rows)]
    return (chosen + random.normal(size=(rows, DIMENSION))).astype(np.float32)


def table_of(vectors: np.ndarray) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION)
    return pa.table({"id": np.arange(len(vectors)), "v": column})


@pytest.fixture
def dataset(tmp_path):
    return lancelet.write_dataset(table_of(vectors_of()), tmp_path / "t", max_rows_per_file=300)


def nearest(dataset, query, k=5, **options):
    wanted = {"column": "v", "q": query, "k": k, **options}
    return dataset.to_table(columns=["id"], nearest=wanted)["id"].to_pylist()


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT"])
def test_separately_built_segments_have_the_results_of_one_index(dataset, kind):
    rotation = json.dumps({"fast_rotation_signs": [1, 2, 3, 4], "num_bits": 8})
    shared = {"ivf_centroids": vectors_of()[:4], "num_partitions": 4}
    if kind == "IVF_RQ":
        shared["rabitq_model"] = rotation
    parts = [
        dataset.create_index_uncommitted("v", kind, name="i", fragment_ids=ids, **shared)
        for ids in ([0, 1], [2, 3])
    ]
    assert not dataset.has_index
    merged = [dataset.merge_existing_index_segments(parts)]
    assert merged[0].fragment_ids == {0, 1, 2, 3}
    dataset.commit_existing_index_segments("i", "v", merged)
    query = vectors_of()[7]
    options = {"nprobes": 4, "refine_factor": 10}
    assert nearest(dataset, query, **options) == nearest(dataset, query, use_index=False)
    np.testing.assert_array_equal(
        np.stack(dataset.centroids(column="v").to_numpy(zero_copy_only=False)), vectors_of()[:4]
    )


def test_a_segment_needs_to_know_its_fragments(dataset):
    with pytest.raises(InvalidInputError, match="requires fragment_ids"):
        dataset.create_index_uncommitted("v", "IVF_FLAT")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ivf_centroids": np.zeros(8)}, "2D array"),
        ({"ivf_centroids": np.zeros((2, 8)), "num_partitions": 3}, "2 clusters"),
        ({"pq_codebook": np.zeros((2, 256, 4))}, "ivf_centroids must be specified"),
        ({"num_sub_vectors": 3}, "must be divisible"),
        ({"num_partitions": 0}, "positive integer"),
        ({"metric": "manhattan"}, "not supported"),
    ],
)
def test_arguments_that_mean_nothing_are_rejected(dataset, options, message):
    with pytest.raises(InvalidInputError, match=message):
        dataset.create_index("v", "IVF_PQ", **{"num_sub_vectors": 2, **options})


def test_an_index_is_built_step_by_step(dataset, tmp_path):
    builder = IndicesBuilder(dataset, "v")
    ivf = builder.train_ivf(4, sample_rate=16)
    pq = builder.train_pq(ivf, 4, sample_rate=4)
    ivf.save(str(tmp_path / "ivf"))
    pq.save(str(tmp_path / "pq"))
    ivf, pq = IvfModel.load(str(tmp_path / "ivf")), PqModel.load(str(tmp_path / "pq"))
    assert (ivf.num_partitions, ivf.distance_type) == (4, "l2")
    assert (pq.dimension, pq.num_subvectors, pq.num_bits) == (DIMENSION, 4, 8)
    sorted_files = []
    fragments = dataset.get_fragments()
    for number, chosen in enumerate((fragments[:2], fragments[2:])):
        name = f"part{number}"
        builder.transform_vectors(ivf, pq, str(tmp_path / name), chosen)
        sorted_files += builder.shuffle_transformed_vectors(
            [name], str(tmp_path), ivf, f"sorted{number}"
        )
    builder.load_shuffled_vectors(sorted_files, str(tmp_path), ivf, pq)
    assert dataset.describe_indices()[0].index_type == "IVF_PQ"
    validate_vector_index(dataset, "v", refine_factor=50, sample_size=20)
    reader = VectorIndexReader(dataset, "v_idx")
    ids = [reader.read_partition(each)["_rowid"].to_pylist() for each in range(4)]
    assert sum(len(own) for own in ids) == ROWS
    sizes = [info["size"] for info in get_ivf_partition_info(dataset, "v_idx")]
    assert sizes == [len(own) for own in ids]
    assert reader.read_partition(0, with_vector=True).column_names == ["_rowid", "__pq_code"]
    with pytest.raises(IndexError):
        reader.read_partition(4)


def test_an_index_that_finds_nothing_of_its_own_fails_the_check(dataset):
    far = np.full((2, DIMENSION), 1e4, np.float32)
    far[1] *= -1
    dataset.create_index("v", "IVF_PQ", num_sub_vectors=2, ivf_centroids=far, num_bits=4)
    with pytest.raises(ValueError, match="sanity check"):
        validate_vector_index(dataset, "v", refine_factor=1, sample_size=50)


def test_recall_is_measured_stored_and_compared(dataset):
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    whole = dataset.recall_report("v", k=5, sample=20, nprobes=4)
    assert (whole.recall, whole.worst, whole.index) == (1.0, 1.0, "v_idx")
    kept = json.loads(dataset.metadata[METADATA_PREFIX + "v_idx"])
    assert kept["recall"] == 1.0
    random = np.random.default_rng(5).normal(size=(600, DIMENSION)).astype(np.float32) * 9
    far = np.zeros((4, DIMENSION), np.float32)
    far[:, 0] = [0, 1e3, 2e3, 3e3]
    other = lancelet.write_dataset(table_of(random), dataset.uri, mode="overwrite")
    other.create_index("v", "IVF_PQ", num_sub_vectors=1, num_bits=8, ivf_centroids=far)
    with pytest.warns(RecallDriftWarning, match=r"fell from 1\.000"):
        fallen = other.recall_report("v", k=5, sample=20, nprobes=1)
    assert fallen.recall < 0.9


def test_the_least_work_is_found_that_finds_enough(dataset):
    dataset.create_index("v", "IVF_FLAT", num_partitions=8, sample_rate=64)
    found = dataset.tune("v", k=5, target_recall=0.9, sample=40)
    assert found.is_reached
    assert found.refine_factor is None
    again = dataset.recall_report("v", k=5, sample=40, store=False, **found.options)
    assert again.recall == pytest.approx(found.recall)
    if found.nprobes > 1:
        fewer = {**found.options, "nprobes": found.nprobes - 1}
        assert dataset.recall_report("v", k=5, sample=40, store=False, **fewer).recall < 0.9
    with pytest.raises(InvalidInputError):
        dataset.tune("v", target_recall=1.5)


def test_vectors_become_tables():
    table = vec_to_table({1: [1.0, 2.0], 5: [3.0, 4.0]})
    assert table.to_pydict() == {"id": [1, 5], "vector": [[1.0, 2.0], [3.0, 4.0]]}
    assert vec_to_table(np.eye(2), names="e").column_names == ["e"]
    with pytest.raises(ValueError, match="Expected 2 dimensions"):
        vec_to_table([[1.0, 2.0], [1.0]])


def test_vectors_in_fields_of_structs_are_found(tmp_path):
    vectors = vectors_of(600)
    inner = table_of(vectors).column("v").combine_chunks()
    data = pa.StructArray.from_arrays([inner, pa.array(np.arange(600))], ["v", "n"])
    found = lancelet.write_dataset(pa.table({"s": data}), tmp_path / "s")
    wanted = {"column": "s.v", "q": vectors[9], "k": 3}
    exact = found.to_table(columns=["s.n"], nearest=wanted)
    assert exact.column(0).to_pylist()[0] == 9
    found.create_index("s.v", "IVF_FLAT", num_partitions=2)
    through = found.to_table(columns=["s.n"], nearest={**wanted, "nprobes": 2})
    assert through.column(0).to_pylist() == exact.column(0).to_pylist()


def test_the_rows_of_a_filter_are_those_of_its_version(dataset):
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    wanted = {"column": "v", "q": vectors_of()[0], "k": 4, "nprobes": 2}

    def found():
        rows = dataset.to_table(columns=["id"], nearest=wanted, filter="id < 400", prefilter=True)
        return rows["id"].to_pylist()

    first = found()
    assert found() == first
    assert max(first) < 400
    dataset.delete(f"id = {first[0]}")
    assert first[0] not in found()

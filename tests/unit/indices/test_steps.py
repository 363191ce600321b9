"""The steps of a build as functions, which pylance has in its native module."""

import json

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.indices import IndicesBuilder
from lancelet.lance import indices

DIMENSION = 16


@pytest.fixture
def dataset(tmp_path):
    values = np.random.default_rng(3).normal(size=(512, DIMENSION)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(values.reshape(-1), DIMENSION)
    return lancelet.write_dataset(pa.table({"v": vectors}), str(tmp_path), max_rows_per_file=256)


def test_segments_of_rq_that_share_a_rotation_are_merged(dataset):
    rotation = indices.build_rq_model(DIMENSION, num_bits=1)
    centroids = IndicesBuilder(dataset, "v").train_ivf(2, sample_rate=8).centroids
    parts = [
        dataset.create_index_uncommitted(
            "v",
            "IVF_RQ",
            num_partitions=2,
            num_bits=1,
            ivf_centroids=centroids,
            rabitq_model=rotation,
            fragment_ids=[fragment],
        )
        for fragment in range(2)
    ]
    merged = dataset.merge_existing_index_segments(parts)
    dataset.commit_existing_index_segments("v_idx", "v", [merged])
    wanted = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 512, "nprobes": 2}
    for each in (dataset, lance.dataset(dataset.uri)):
        assert each.to_table(nearest=wanted).num_rows == 512


def test_a_rotation_matches_the_reference():
    ours, theirs = (
        json.loads(module.build_rq_model(DIMENSION, 3)) for module in (indices, lance.lance.indices)
    )
    assert len(ours["fast_rotation_signs"]) == len(theirs["fast_rotation_signs"])
    assert {**ours, "fast_rotation_signs": ()} == {**theirs, "fast_rotation_signs": ()}


@pytest.mark.parametrize("wrong", [(12, 1), (0, 1), (16, 0), (16, 10), (16, 1, "int8")])
def test_other_rotations_are_rejected(wrong):
    with pytest.raises(InvalidInputError):
        indices.build_rq_model(*wrong)


def test_the_builder_takes_its_steps_from_here(dataset, monkeypatch):
    taken = []
    for name in ("train_ivf_model", "train_pq_model", "transform_vectors"):
        monkeypatch.setattr(indices, name, lambda *given, name=name: taken.append((name, given[2])))
    builder = IndicesBuilder(dataset, "v")
    monkeypatch.setattr(builder, "_verify_pq_sample_rate", lambda *_: None)
    ivf = builder.train_ivf(2, sample_rate=8)
    pq = builder.train_pq(ivf, 2, sample_rate=2)
    builder.transform_vectors(ivf, pq, "memory://nowhere/f.lance")
    assert [dimension for _, dimension in taken] == [DIMENSION] * 3

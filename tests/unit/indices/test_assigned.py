"""Partitions that PyTorch assigns are the nearest centroids."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import UnsupportedError
from lancelet.indices import IndicesBuilder, IvfModel
from lancelet.torch.required import torch_if_installed


def test_rows_are_assigned_to_their_nearest_centroid(tmp_path):
    vectors = np.random.default_rng(2).normal(size=(60, 4)).astype(np.float32)
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 4)})
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    centroids = vectors[:3]
    model = IvfModel(pa.FixedSizeListArray.from_arrays(centroids.reshape(-1), 4), "l2")
    builder = IndicesBuilder(dataset, "v")
    where = str(tmp_path / "parts")
    if torch_if_installed() is None:
        with pytest.raises(UnsupportedError, match="PyTorch"):
            builder.assign_ivf_partitions(model, "cpu", output_uri=where)
        return
    assert builder.assign_ivf_partitions(model, "cpu", output_uri=where) == where
    found = lancelet.dataset(where).to_table().sort_by("row_id")
    distances = ((vectors[:, None] - centroids) ** 2).sum(axis=2)
    assert found["partition"].to_pylist() == distances.argmin(axis=1).tolist()

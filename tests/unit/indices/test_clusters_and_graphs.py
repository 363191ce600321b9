"""Clusters and graphs as programs for pylance ask for them."""

import json

import numpy as np
import pyarrow as pa
import pytest

import lancelet.util
from lancelet.errors import InvalidInputError
from lancelet.file import LanceFileReader

RANDOM = np.random.default_rng(3)
VECTORS = np.concatenate([RANDOM.normal(at, 0.1, (20, 4)) for at in (0, 5, 10)]).astype(np.float32)


def _lists(matrix):
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


@pytest.mark.parametrize(
    "given", [VECTORS, _lists(VECTORS), pa.FixedShapeTensorArray.from_numpy_ndarray(VECTORS)]
)
def test_clusters_are_found_and_separated(given):
    model = lancelet.util.KMeans(3)
    assert model.centroids is None
    model.fit(given)
    labels = model.predict(given)
    assert labels.type == pa.uint32()
    groups = labels.to_numpy().reshape(3, 20)
    assert all(len(set(group)) == 1 for group in groups)
    assert len(set(labels.to_pylist())) == 3
    known = lancelet.util.KMeans(3, centroids=_lists(model.centroids.to_numpy_ndarray()))
    assert known.predict(given) == labels


def test_metrics_have_their_clusters():
    for metric in ("cosine", "dot", "euclidean"):
        model = lancelet.util.KMeans(2, metric_type=metric)
        model.fit(VECTORS + 1)
        assert len(model.centroids) == 2
    assert repr(lancelet.util.KMeans(2, "L2")) == "lance.KMeans(k=2, metric_type=l2)"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (VECTORS.astype(np.float64), "float32"),
        (VECTORS.ravel(), "2-D"),
        (_lists(VECTORS.astype(np.float64)), "float32"),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(VECTORS.reshape(3, 20, 4)), "1-D"),
        ([1.0], "must be"),
    ],
)
def test_non_vectors_input_is_rejected(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        lancelet.util.KMeans(2).fit(wrong)


def test_clusters_need_a_number_a_metric_and_vectors():
    with pytest.raises(ValueError, match="metric_type"):
        lancelet.util.KMeans(2, "hamming")
    with pytest.raises(ValueError, match="at least 1"):
        lancelet.util.KMeans(0)
    with pytest.raises(RuntimeError, match="fit"):
        lancelet.util.KMeans(2).predict(VECTORS)
    with pytest.raises(RuntimeError, match="fewer"):
        lancelet.util.KMeans(70).fit(VECTORS)


def test_a_graph_is_built_and_written(tmp_path):
    graph = lancelet.util.HNSW.build(iter([_lists(VECTORS[:30]), _lists(VECTORS[30:])]), m=4)
    assert graph.vectors().to_pylist() == VECTORS.tolist()
    graph.to_lance_file(tmp_path / "graph.lance")
    reader = LanceFileReader(str(tmp_path / "graph.lance"))
    rows = reader.read_all().to_table()
    level = rows.slice(0, len(VECTORS))
    assert level["__vector_id"].to_pylist() == list(range(len(VECTORS)))
    for near in level["__neighbors"].to_pylist():
        assert near
        assert max(near) < len(VECTORS)
    (note,) = json.loads(reader.metadata().schema.metadata[b"lance:hnsw"])
    assert json.loads(note)["params"]["m"] == 4


def test_a_graph_needs_vectors():
    with pytest.raises(InvalidInputError):
        lancelet.util.HNSW.build(iter([]))
    with pytest.raises(InvalidInputError):
        lancelet.util.HNSW.build(iter([pa.array([1.0])]))

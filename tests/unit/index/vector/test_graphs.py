"""Graphs of binary vectors: distances, and graphs built with another metric."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import UnsupportedError
from lancelet.index.kernels import Comparison
from lancelet.index.vector.quantizers import registry
from lancelet.index.vector.quantizers.base import GraphView
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.segment import IvfSegment
from lancelet.scan.indexing.column_indices import vector_indices

ROWS, NEAREST = 3000, 10
RANDOM = np.random.default_rng(3)
CENTERS = RANDOM.integers(0, 2, (40, 128))


def near_centers(count):
    """Return vectors of 128 bits that differ from a center in a few bits."""
    flipped = RANDOM.random((count, 128)) < 0.1
    return np.packbits(CENTERS[RANDOM.integers(0, len(CENTERS), count)] ^ flipped, axis=1)


VECTORS, QUERIES = near_centers(ROWS), near_centers(8)


def written(path):
    column = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), 16)
    return lancelet.write_dataset(pa.table({"v": column}), path, max_rows_per_file=ROWS // 2)


def recall(dataset):
    hits = 0
    for query in QUERIES:
        exact = np.sort(np.unpackbits(VECTORS ^ query, axis=1).sum(axis=1))
        nearest = {"column": "v", "q": query, "k": NEAREST}
        answer = dataset.to_table(columns=["_distance"], nearest=nearest)["_distance"].to_numpy()
        assert len(answer) == NEAREST
        hits += int((answer <= exact[NEAREST - 1]).sum())
    return hits / (NEAREST * len(QUERIES))


def dot_view(quantizer, codes):
    """Return bytes as numbers for dot products, for all metrics."""
    return GraphView(
        np.ascontiguousarray(codes["flat"], np.float32), Comparison.FLOAT_DOT, base=1.0
    )


@pytest.fixture
def misbuilt(tmp_path, monkeypatch):
    dataset = written(tmp_path / "t.lance")
    with monkeypatch.context() as patch:
        patch.setattr(Flat, "graph_view", dot_view)
        dataset.create_index("v", "IVF_HNSW_FLAT", metric="hamming", num_partitions=1)
    return dataset


def test_bits_are_found_by_their_graph(tmp_path, monkeypatch):
    dataset = written(tmp_path / "t.lance")
    dataset.create_index("v", "IVF_HNSW_FLAT", metric="hamming", num_partitions=1)
    walked = []
    read = IvfSegment.graph
    monkeypatch.setattr(IvfSegment, "graph", lambda *of: walked.append(read(*of)) or walked[-1])
    assert recall(dataset) >= 0.95
    assert walked
    assert None not in walked


def test_a_graph_with_other_distances_is_not_walked(misbuilt):
    assert recall(misbuilt) == 1.0


@pytest.mark.parametrize("change", ["retrain", "merge"])
def test_an_index_with_such_a_graph_is_rebuilt_by_optimize(misbuilt, change):
    if change == "retrain":
        misbuilt.optimize.optimize_indices(retrain=True)
    else:
        misbuilt.insert(misbuilt.to_table().slice(0, 1))
        misbuilt.optimize.optimize_indices(num_indices_to_merge=1)
    (index,) = lancelet.dataset(misbuilt.uri).describe_indices()
    assert len(index.segments) == 1
    (segment,) = segments_of(misbuilt)
    assert segment.open().graph(0) is not None
    assert recall(misbuilt) >= 0.95


def segments_of(dataset):
    return vector_indices(dataset.snapshot)[("v",)][0].segments


@pytest.mark.parametrize("kind", [each for each in registry.KINDS if not each.endswith("FLAT")])
def test_codes_of_bits_are_rejected_and_not_read(tmp_path, kind, monkeypatch):
    dataset = written(tmp_path / "t.lance")
    options = {"metric": "hamming", "num_partitions": 1}
    if kind.endswith("PQ"):
        options["num_sub_vectors"] = 4
    with pytest.raises(UnsupportedError, match="hamming"):
        dataset.create_index("v", kind, **options)
    assert not dataset.describe_indices()
    with monkeypatch.context() as patch:
        patch.setattr("lancelet.index.vector.train.check_metric", lambda *_: None)
        dataset.create_index("v", kind, **options)
    with pytest.warns(UserWarning, match="cannot be used"):
        assert recall(lancelet.dataset(dataset.uri)) == 1.0

"""Measure vector indices by number of rows: build time, size, recall and latency of a search.

    python benchmarks/index_settings.py 100000 IVF_PQ IVF_SQ --dims 128 --refine 10

The vectors are a mixture of 1,000 clusters in 24 dimensions, projected to `dims` dimensions with
noise, like embeddings. The recall is the share of the 10 nearest vectors that are found, over 100
queries; the latency is their median when they are repeated. `none` searches without an index. Other
parameters of the indices are the defaults.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import lancelet

QUERIES = 100
NEAREST = 10
CLUSTERS = 1_000
LATENT = 24
BATCH = 50_000


def main() -> None:
    """Print one line of JSON per index and refinement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("kinds", nargs="+", help="such as IVF_PQ, or none")
    parser.add_argument("--dims", type=int, default=128)
    parser.add_argument("--refine", type=int, nargs="*", default=[0, 10])
    parser.add_argument("--probes", type=int, nargs="*", default=[0])
    parser.add_argument("--sub-vectors", type=int, help="the sub-vectors of PQ")
    given = parser.parse_args()
    source = Vectors(given.dims)
    with tempfile.TemporaryDirectory() as folder:
        schema = pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32(), given.dims)})
        nearest = Nearest(source.queries)
        batches = _batches(source, given.rows, nearest, schema)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        dataset = lancelet.write_dataset(reader, f"{folder}/t.lance")
        for kind in given.kinds:
            seconds = index_bytes = 0.0
            if kind != "none":
                begun = time.perf_counter()
                options = {"num_sub_vectors": given.sub_vectors} if given.sub_vectors else {}
                dataset.create_index("v", kind, replace=True, **options)
                seconds = time.perf_counter() - begun
                newest = max(Path(folder).glob("t.lance/_indices/*"), key=_modified)
                index_bytes = sum(file.stat().st_size for file in newest.iterdir())
            for probes in given.probes:
                for refine in given.refine if kind != "none" else [0]:
                    recall, millis = _search(
                        dataset, source.queries, nearest.ids, refine, probes, kind
                    )
                    print(
                        json.dumps(
                            {
                                "rows": given.rows,
                                "kind": kind,
                                "num_sub_vectors": given.sub_vectors,
                                "refine_factor": refine,
                                "nprobes": probes,
                                "build_s": round(seconds, 1),
                                "index_mb": round(index_bytes / 1e6, 1),
                                "recall": round(recall, 3),
                                "median_ms": round(millis, 2),
                            }
                        ),
                        flush=True,
                    )


class Vectors:
    """A source of clustered vectors and queries of the same distribution."""

    def __init__(self, dims: int) -> None:
        """Draw the clusters and the queries."""
        self._random = np.random.default_rng(1)
        self._centers = self._random.normal(size=(CLUSTERS, LATENT)) * 2
        self._projection = self._random.normal(size=(LATENT, dims)) / LATENT**0.5
        self.queries = self.draw(QUERIES)

    def draw(self, count: int) -> np.ndarray:
        """Return the next vectors."""
        cluster = self._random.integers(0, CLUSTERS, count)
        latent = self._centers[cluster] + self._random.normal(size=(count, LATENT))
        exact = latent @ self._projection
        return (exact + self._random.normal(size=exact.shape) * 0.1).astype(np.float32)


class Nearest:
    """The exact nearest vectors of the queries, updated by batches."""

    def __init__(self, queries: np.ndarray) -> None:
        """Start without vectors."""
        self._queries = queries
        self._distances = np.full((len(queries), NEAREST), np.inf)
        self.ids = np.zeros((len(queries), NEAREST), np.int64)

    def add(self, first_id: int, vectors: np.ndarray) -> None:
        """Add vectors with consecutive ids."""
        distances = (vectors**2).sum(1) - 2 * self._queries @ vectors.T
        ids = np.broadcast_to(np.arange(first_id, first_id + len(vectors)), distances.shape)
        distances = np.concatenate([self._distances, distances], 1)
        ids = np.concatenate([self.ids, ids], 1)
        best = np.argpartition(distances, NEAREST, 1)[:, :NEAREST]
        self._distances = np.take_along_axis(distances, best, 1)
        self.ids = np.take_along_axis(ids, best, 1)


def _batches(
    source: Vectors, rows: int, nearest: Nearest, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, BATCH):
        vectors = source.draw(min(BATCH, rows - first))
        nearest.add(first, vectors)
        ids = pa.array(np.arange(first, first + len(vectors)))
        column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])
        yield pa.RecordBatch.from_arrays([ids, column], schema=schema)


def _search(
    dataset: lancelet.LanceDataset,
    queries: np.ndarray,
    exact: np.ndarray,
    refine: int,
    probes: int,
    kind: str,
) -> tuple[float, float]:
    options = {"refine_factor": refine} if refine else {}
    options |= {"nprobes": probes} if probes else {}
    found, seconds = [], []
    for query in (*queries, *queries):
        nearest = {"column": "v", "q": query, "k": NEAREST, "use_index": kind != "none", **options}
        begun = time.perf_counter()
        table = dataset.to_table(columns=["id"], nearest=nearest)
        seconds.append(time.perf_counter() - begun)
        found.append(table["id"].to_numpy())
    hits = sum(
        len(np.intersect1d(ids, true)) for ids, true in zip(found[QUERIES:], exact, strict=True)
    )
    return hits / exact.size, statistics.median(seconds[QUERIES:]) * 1e3


def _modified(path: Path) -> float:
    return path.stat().st_mtime


if __name__ == "__main__":
    main()

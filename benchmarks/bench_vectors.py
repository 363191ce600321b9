"""Nearest vectors beside the reference: queries of one index by both, exact search, builds.

python benchmarks/bench_vectors.py [--rows 100000] [--dimension 128] [--rounds 5]

Vectors lie in clusters. Both search the same files, those of the reference, with the same number
of partitions, so that recall is the same; it is printed. A case is 20 queries.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance as reference
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, save

import lancelet as ours

NEAREST = 10
QUERIES = 20
FILTERS = {"all": None, "50 %": "g < 50", "1 %": "g = 7"}
BUILDS = {"IVF_PQ": {"num_sub_vectors": 16}, "IVF_HNSW_SQ": {}}


def main() -> None:
    """Run all cases and save what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        found = list(cases(Path(folder), arguments.rows, arguments.dimension, arguments.rounds))
    facts = {"rows": arguments.rows, "dimension": arguments.dimension}
    print("saved", save("vectors", found, facts, arguments.save))


def cases(folder: Path, num_rows: int, dimension: int, rounds: int) -> Iterator[Comparison]:
    """Search exactly, then build and search an index of each kind."""
    path = str(folder / "vectors")
    vectors, queries = clustered(num_rows, dimension)
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), dimension)
    table = pa.table({"id": np.arange(num_rows), "g": np.arange(num_rows) % 100, "v": column})
    reference.write_dataset(table, path)
    exact = search(ours.dataset(path), queries, {"use_index": False})
    for name, condition in FILTERS.items():
        yield searched(f"exact, {name}", path, queries, {"use_index": False}, condition, rounds)
    for kind, options in BUILDS.items():
        build = partial(built, path=path, kind=kind, options=options)
        yield compare(f"build {kind}", partial(build, ours), partial(build, reference), rounds=1)
        wanted = {"nprobes": 20, "refine_factor": 4}
        found = search(ours.dataset(path), queries, wanted)
        hits = sum(len(set(own) & set(truth)) for own, truth in zip(found, exact, strict=True))
        recall = hits / (NEAREST * len(queries))
        for name, condition in FILTERS.items():
            case = f"{kind}, {name}, recall {recall:.2f}"
            yield searched(case, path, queries, wanted, condition, rounds)


def searched(
    name: str,
    path: str,
    queries: Any,
    options: dict[str, Any],
    condition: str | None,
    rounds: int,
) -> Comparison:
    """Compare searches of the same table."""
    both: list[Callable[[], object]] = []
    for module in (ours, reference):
        both.append(partial(search, module.dataset(path), queries, options, condition))
        both[-1]()
    return compare(name, both[0], both[1], rounds=rounds)


def search(
    dataset: Any, queries: Any, options: dict[str, Any], condition: str | None = None
) -> list[list[int]]:
    """Return the rows nearest to each query."""
    scan = {} if condition is None else {"filter": condition, "prefilter": True}
    return [
        dataset.to_table(
            columns=["id"], nearest={"column": "v", "q": query, "k": NEAREST, **options}, **scan
        )["id"].to_pylist()
        for query in queries
    ]


def built(module: Any, *, path: str, kind: str, options: dict[str, Any]) -> None:
    """Build an index in place of the one there is."""
    module.dataset(path).create_index("v", kind, replace=True, **options)


def clustered(num_rows: int, dimension: int) -> tuple[Any, Any]:
    """Return vectors around a thousand centers, and queries near some of them."""
    random = np.random.default_rng(1)
    centers = random.normal(size=(1000, dimension)).astype(np.float32) * 2
    vectors = centers[random.integers(0, 1000, num_rows)]
    vectors += random.normal(size=(num_rows, dimension)).astype(np.float32)
    queries = vectors[:QUERIES] + random.normal(size=(QUERIES, dimension)).astype(np.float32) * 0.3
    return vectors, queries.astype(np.float32)


if __name__ == "__main__":
    main()

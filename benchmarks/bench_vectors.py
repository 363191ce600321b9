"""Compare vector search with the reference: queries of one index, exact search, builds.

python benchmarks/bench_vectors.py [--rows 50000] [--dims 128] [--rounds 5] [--kinds IVF_PQ ...]
python benchmarks/bench_vectors.py --rows 500000 --kinds IVF_PQ IVF_HNSW_SQ --folder FOLDER
python benchmarks/bench_vectors.py --rows 200000 --dims 768 --parts builds queries

Parts are `builds`, `queries`, `memory` and `curves`. With a folder, the tables remain there, one
for each index kind, and parts can be measured separately: without `builds`, existing tables are
used.

Vectors form clusters. Both sides search the same files, written by the reference, with the same
number of partitions, so that recall is the same; it is printed. A case is 20 queries. `vectors.svg`
shows the cost of recall, also for faiss and hnswlib if they are installed (group `bench`). The
memory of a build is measured in its own process.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance as reference
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, measure, save

import lancelet as ours

NEAREST = 10
QUERIES = 20
FILTERS = {"all": None, "50 %": "g < 50", "1 %": "g = 7"}
PROBES = (1, 2, 4, 8, 16, 32, 64)
BEAMS = (10, 20, 40, 80, 160)
COLORS = ("#c0392b", "#2c6fbb", "#7f8c8d", "#27ae60")
USUAL = 50_000, 128
KINDS = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_SQ", "IVF_FLAT", "IVF_RQ")
PARTS = ("builds", "queries", "memory", "curves")
MEMORY = """
import json, sys, {module} as module
options = json.loads(sys.argv[3])
module.dataset(sys.argv[1]).create_index("v", sys.argv[2], replace=True, **options)
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(lines["VmHWM"].split()[0]) // 1024)
"""


def main() -> None:
    """Run all cases and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=USUAL[0])
    parser.add_argument("--dims", "--dimension", dest="dimension", type=int, default=USUAL[1])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--folder", type=Path, help="the folder for tables; by default temporary")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory() as temporary:
        own = f"{arguments.rows}x{arguments.dimension}"
        folder = (arguments.folder or Path(temporary)) / own
        found = list(cases(folder, arguments))
        facts: dict[str, Any] = {"rows": arguments.rows, "dimension": arguments.dimension}
        if "memory" in arguments.parts:
            facts["build_peak_mib"] = {
                kind: peaks_of(folder, kind, arguments) for kind in arguments.kinds
            }
            print("MiB at most while building", facts["build_peak_mib"])
        if "curves" in arguments.parts:
            facts["curves"] = curves(folder, arguments)
    name = "vectors" if (arguments.rows, arguments.dimension) == USUAL else f"vectors-{own}"
    arguments.save.mkdir(parents=True, exist_ok=True)
    if "curves" in facts:
        (arguments.save / f"{name}.svg").write_text(drawn(facts["curves"]))
    print("saved", save(name, found, facts, arguments.save))


def cases(folder: Path, arguments: argparse.Namespace) -> Iterator[Comparison]:
    """Search exactly, then build and search an index of each kind."""
    dimension, rounds = arguments.dimension, arguments.rounds
    has_builds, has_queries = "builds" in arguments.parts, "queries" in arguments.parts
    queries = clustered(arguments.rows, dimension)[1]
    path = table_of(folder, "exact", arguments)
    exact = search(ours.dataset(path), queries, {"use_index": False}) if has_queries else []
    for name, condition in FILTERS.items() if has_queries else ():
        yield searched(f"exact, {name}", path, queries, {"use_index": False}, condition, rounds)
    for kind in arguments.kinds:
        path = table_of(folder, kind, arguments)
        build = partial(built, path=path, kind=kind, options=options_of(kind, dimension))
        if has_builds:
            own, other = partial(build, ours), partial(build, reference)
            yield compare(f"build {kind}", own, other, rounds=1)
        elif has_queries and not reference.dataset(path).describe_indices():
            build(reference)
        if not has_queries:
            continue
        wanted = {"nprobes": 20, "refine_factor": 4}
        found = search(ours.dataset(path), queries, wanted)
        hits = sum(len(set(own) & set(truth)) for own, truth in zip(found, exact, strict=True))
        recall = hits / (NEAREST * len(queries))
        for name, condition in FILTERS.items():
            case = f"{kind}, {name}, recall {recall:.2f}"
            yield searched(case, path, queries, wanted, condition, rounds)


def table_of(folder: Path, kind: str, arguments: argparse.Namespace) -> str:
    """Return where the table of a kind is, which is written if it is not there."""
    path = folder / kind
    if not path.exists():
        count = arguments.rows
        vectors, _ = clustered(count, arguments.dimension)
        column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), arguments.dimension)
        table = pa.table({"id": np.arange(count), "g": np.arange(count) % 100, "v": column})
        reference.write_dataset(table, str(path))
    return str(path)


def options_of(kind: str, dimension: int) -> dict[str, Any]:
    """Return the arguments of an index kind."""
    return {"num_sub_vectors": dimension // 8} if kind.endswith("PQ") else {}


def peaks_of(folder: Path, kind: str, arguments: argparse.Namespace) -> dict[str, int]:
    """Return the memory in MiB of each side to build an index, including mapped files."""
    options = json.dumps(options_of(kind, arguments.dimension))
    given = [table_of(folder, kind, arguments), kind, options]
    found = {}
    for module in ("lancelet", "lance"):
        code = MEMORY.format(module=module)
        run = [sys.executable, "-c", code, *given]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
        found[module] = int(done.stdout.split()[-1])
    return found


def curves(folder: Path, arguments: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """Return, for each library, recall and milliseconds of CPU of a search, by probes."""
    path = table_of(folder, "curves", arguments)
    vectors, queries = clustered(arguments.rows, arguments.dimension)
    exact = search(ours.dataset(path), queries, {"use_index": False})
    found: dict[str, list[tuple[float, float]]] = {}
    if not reference.dataset(path).describe_indices():
        options = options_of("IVF_PQ", arguments.dimension)
        reference.dataset(path).create_index("v", "IVF_PQ", num_partitions=256, **options)
    for name, module in (("lancelet", ours), ("pylance", reference)):
        dataset = module.dataset(path)
        found[name] = [
            point(partial(search, dataset, queries, {"nprobes": probes, "refine_factor": 4}), exact)
            for probes in PROBES
        ]
    return found | yardsticks(vectors, queries, exact)


def yardsticks(
    vectors: Any, queries: Any, exact: list[list[int]]
) -> dict[str, list[tuple[float, float]]]:
    """Return the same for libraries that only search, where they are installed."""
    found: dict[str, list[tuple[float, float]]] = {}
    if importlib.util.find_spec("faiss") is not None:
        faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(1)  # threads that wait for each other count as work
        index = faiss.index_factory(vectors.shape[1], f"IVF256,PQ{vectors.shape[1] // 8}")
        index.train(vectors[:65536])
        index.add(vectors)
        refined = faiss.IndexRefineFlat(index, faiss.swig_ptr(vectors))
        refined.k_factor = 4
        found["faiss IVF_PQ"] = []
        for probes in PROBES:
            index.nprobe = probes
            run = partial(one_by_one, lambda q: refined.search(q[None], NEAREST)[1][0], queries)
            found["faiss IVF_PQ"].append(point(run, exact))
    if importlib.util.find_spec("hnswlib") is not None:
        graph = importlib.import_module("hnswlib").Index("l2", vectors.shape[1])
        graph.init_index(len(vectors), ef_construction=150, M=20)
        graph.add_items(vectors)
        found["hnswlib"] = []
        for beam in BEAMS:
            graph.set_ef(beam)
            find = partial(graph.knn_query, k=NEAREST, num_threads=1)
            run = partial(one_by_one, lambda q, find=find: find(q)[0][0], queries)
            found["hnswlib"].append(point(run, exact))
    return found


def one_by_one(find: Callable[[Any], Any], queries: Any) -> list[list[int]]:
    """Return the rows nearest to each query, searched sequentially."""
    return [find(query).tolist() for query in queries]


def point(run: Callable[[], list[list[int]]], exact: list[list[int]]) -> tuple[float, float]:
    """Return the recall of a search and its milliseconds of CPU, the least of some runs."""
    found = run()
    hits = sum(len(set(own) & set(truth)) for own, truth in zip(found, exact, strict=True))
    costs = [measure(run).cpu_ms for _ in range(5)]
    return hits / (NEAREST * len(exact)), min(costs) / len(exact)


def drawn(lines: dict[str, list[tuple[float, float]]]) -> str:
    """Return a picture of recall against milliseconds, both growing towards the upper right."""
    width, height, edge = 640, 400, 50
    costs = [cost for points in lines.values() for _, cost in points]
    low, high = math.log10(min(costs)), math.log10(max(costs))
    head = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg {head} viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]

    def place(recall: float, cost: float) -> tuple[float, float]:
        across = (math.log10(cost) - low) / max(high - low, 1e-9)
        return edge + across * (width - 2 * edge), height - edge - recall * (height - 2 * edge)

    for recall in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = place(recall, 10**low)
        parts.append(f'<path d="M{edge} {y:.0f}H{width - edge}" stroke="#ddd"/>')
        parts.append(f'<text x="{edge - 6}" y="{y + 4:.0f}" text-anchor="end">{recall}</text>')
    for cost in (10**low, 10 ** ((low + high) / 2), 10**high):
        x, _ = place(0, cost)
        parts.append(
            f'<text x="{x:.0f}" y="{height - edge + 18}" text-anchor="middle">{cost:.2f}</text>'
        )
    parts.append(
        f'<text x="{width / 2:.0f}" y="{height - 8}" text-anchor="middle">'
        f"milliseconds of CPU per search (logarithmic), recall@{NEAREST} upwards</text>"
    )
    for color, (name, points) in zip(COLORS, lines.items(), strict=False):
        spots = [place(recall, cost) for recall, cost in points]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in spots]
        x, y = spots[-1]
        parts.append(f'<text x="{x - 4:.0f}" y="{y - 8:.0f}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


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
            columns=["id", "_distance"],
            nearest={"column": "v", "q": query, "k": NEAREST, **options},
            **scan,
        )["id"].to_pylist()
        for query in queries
    ]


def built(module: Any, *, path: str, kind: str, options: dict[str, Any]) -> None:
    """Build an index that replaces the existing one."""
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

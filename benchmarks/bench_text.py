"""Compare text indices with the reference: builds, and searches of rare and frequent words.

python benchmarks/bench_text.py [--scale 1.0] [--rows N] [--rounds 5]
python benchmarks/bench_text.py --folder FOLDER --parts tables builds
python benchmarks/bench_text.py --folder FOLDER --parts queries

Each side builds its index in its own process, of which time and peak memory are measured. If the
package tantivy is installed, it is measured as well: a library for texts only, which returns the
same best documents and one stored number of each. With a folder, tables and indices remain there,
and parts can be measured separately.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, Timing, compare, measure, save

import lancelet
import lancelet.query

RESULTS = Path(__file__).parent / "results"
ROWS = 500_000
WORDS = 200_000
LENGTH = 50
SIDES = ("lancelet", "lance")
PARTS = ("tables", "builds", "queries")
OPTIONS = {"with_position": True, "stem": False, "remove_stop_words": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--rows", type=int, help="the number of texts, instead of a scale of 500,000"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--folder", type=Path, help="the folder for tables; by default temporary")
    arguments = parser.parse_args()
    count = arguments.rows or int(ROWS * arguments.scale)
    print(HEADER)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if "tables" in arguments.parts:
            write_tables(folder, count)
        if "builds" in arguments.parts:
            builds(folder, count)
        if "queries" in arguments.parts:
            queries(folder, count, arguments.rounds)


def write_tables(folder: Path, count: int) -> None:
    table = table_of(count)
    for side in SIDES:
        shutil.rmtree(folder / side, ignore_errors=True)
        lancelet.write_dataset(table, str(folder / side))


def builds(folder: Path, count: int) -> None:
    """Build an index of each side, each in a process of its own."""
    taken = {side: build(side, folder / side) for side in SIDES}
    found = Comparison(f"build {count:,}", taken["lancelet"][0], taken["lance"][0])
    print(found.row())
    peaks = {side: peak for side, (_, peak) in taken.items()}
    print(f"peak of memory of a build, MB: {peaks}")
    extra: dict[str, object] = {"num_rows": count, "peak_mb": peaks}
    if importlib.util.find_spec("tantivy"):
        extra["tantivy_ms"] = round(build_yardstick(folder), 1)
        print(f"tantivy, CPU ms: {extra['tantivy_ms']}")
    save("text_builds", [found], extra, RESULTS)


def queries(folder: Path, count: int, rounds: int) -> None:
    """Search the tables of both sides in turns."""
    found = []
    for name, query in QUERIES.items():

        def search(module: Any, query: Any = query) -> Callable[[], object]:
            dataset = module.dataset(str(folder / module.__name__))
            wanted = query(module.query)
            columns = ["id", "_score"]
            return lambda: dataset.to_table(columns=columns, full_text_query=wanted, limit=10)

        found.append(compare(name, search(lancelet), search(lance), rounds=rounds, repeat=50))
    extra: dict[str, object] = {"num_rows": count}
    if importlib.util.find_spec("tantivy"):
        extra["tantivy_ms"] = search_yardstick(folder)
        print(f"tantivy, CPU ms: {extra['tantivy_ms']}")
    save("text", found, extra, RESULTS)


# The peak memory of a new process in `getrusage` starts with that of its parent.
BUILD = """
import re, sys, time
module = __import__(sys.argv[1])
dataset = module.dataset(sys.argv[2])
wall, cpu = time.perf_counter(), time.process_time()
dataset.create_scalar_index("text", "INVERTED", {options})
print((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def build(module: str, path: Path) -> tuple[Timing, float]:
    """Return the time and the peak memory in megabytes of a process that builds an index."""
    options = ", ".join(f"{name}={value!r}" for name, value in OPTIONS.items())
    program = [sys.executable, "-c", BUILD.format(options=options), module, str(path)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    wall, cpu, peak = map(float, done.stdout.split()[-3:])
    return Timing(wall, cpu), round(peak)


def build_yardstick(folder: Path) -> float:
    """Return the CPU time of tantivy to build an index of the same texts, in milliseconds."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True)
    builder.add_text_field("text", stored=False, tokenizer_name="default")
    shutil.rmtree(folder / "tantivy", ignore_errors=True)
    (folder / "tantivy").mkdir()
    index = tantivy.Index(builder.build(), path=str(folder / "tantivy"))
    batches = lancelet.dataset(str(folder / "lancelet")).to_batches(batch_size=10_000)

    def add_all() -> None:
        writer = index.writer(num_threads=1)
        for batch in batches:
            for row in batch.to_pylist():
                writer.add_document(tantivy.Document(id=row["id"], text=row["text"]))
        writer.commit()

    return measure(add_all).cpu_ms


def search_yardstick(folder: Path) -> dict[str, float]:
    """Return the CPU time of tantivy for the same queries, in milliseconds."""
    import tantivy

    index = tantivy.Index.open(str(folder / "tantivy"))
    searcher = index.searcher()
    times = {}
    for name, words in YARDSTICK.items():
        query = index.parse_query(words, ["text"])

        def search(query: Any = query) -> None:
            for _ in range(50):
                hits = searcher.search(query, 10, count=False).hits
                _ = [searcher.doc(address)["id"] for _, address in hits]

        search()
        times[name] = round(min(measure(search).cpu_ms for _ in range(3)) / 50, 3)
    return times


QUERIES: dict[str, Callable[[Any], Any]] = {
    "rare word": lambda q: q.MatchQuery(word(150_000), "text"),
    "frequent word": lambda q: q.MatchQuery(word(0), "text"),
    "three frequent words": lambda q: q.MatchQuery(f"{word(0)} {word(1)} {word(2)}", "text"),
    "two words": lambda q: q.MatchQuery(f"{word(50)} {word(300)}", "text"),
    "phrase": lambda q: q.PhraseQuery(f"{word(5)} {word(9)}", "text"),
}


YARDSTICK = {
    "rare word": "w150000",
    "frequent word": "w0",
    "three frequent words": "w0 w1 w2",
    "two words": "w50 w300",
    "phrase": '"w5 w9"',
}


def word(number: int) -> str:
    return f"w{number}"


def table_of(count: int) -> pa.Table:
    chosen = np.minimum(np.random.default_rng(0).zipf(1.15, count * LENGTH) - 1, WORDS - 1)
    words = np.array([word(number) for number in range(WORDS)], object)[chosen]
    texts = [" ".join(words[start : start + LENGTH]) for start in range(0, len(words), LENGTH)]
    return pa.table({"id": np.arange(count), "text": texts})


if __name__ == "__main__":
    main()

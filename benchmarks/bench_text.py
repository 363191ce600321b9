"""Text indices beside the reference: building them, and searching rare and frequent words.

python benchmarks/bench_text.py [--scale 1.0] [--rows N] [--rounds 5]

Each side builds its index in a process of its own, whose peak of memory is measured. Where the
package tantivy is installed its times stand beside, as a yardstick: a library for texts alone,
asked for the same best documents and one stored number of each.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from compare import HEADER, Comparison, compare, measure, save

import lancelet
import lancelet.query

RESULTS = Path(__file__).parent / "results"
ROWS = 500_000
WORDS = 200_000
LENGTH = 50
OPTIONS = {"with_position": True, "stem": False, "remove_stop_words": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rows", type=int, help="how many texts, in place of a scale of 500,000")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    scale = arguments.scale if arguments.rows is None else arguments.rows / ROWS
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        results, extra = cases(Path(folder), scale, arguments.rounds)
    save("text", results, {"scale": scale, **extra}, RESULTS)


def cases(
    folder: Path, scale: float, rounds: int
) -> tuple[list[Comparison], dict[str, dict[str, float]]]:
    count = int(ROWS * scale)
    table = table_of(count)
    ours, theirs = str(folder / "ours"), str(folder / "theirs")
    for path in (ours, theirs):
        lancelet.write_dataset(table, path)

    def build(module: Any, path: str) -> Callable[[], object]:
        return lambda: module.dataset(path).create_scalar_index("text", "INVERTED", **OPTIONS)

    found = [compare(f"build {count:,}", build(lancelet, ours), build(lance, theirs), rounds=1)]
    peaks = {"lancelet": peak_of_build("lancelet", ours), "lance": peak_of_build("lance", theirs)}
    print(f"peak of memory of a build, MB: {peaks}")
    for name, query in QUERIES.items():

        def search(module: Any, path: str, query: Any = query) -> Callable[[], object]:
            dataset = module.dataset(path)
            wanted = query(module.query)
            columns = ["id", "_score"]
            return lambda: dataset.to_table(columns=columns, full_text_query=wanted, limit=10)

        found.append(
            compare(name, search(lancelet, ours), search(lance, theirs), rounds=rounds, repeat=50)
        )
    extra = {"peak_mb": peaks}
    if importlib.util.find_spec("tantivy"):
        extra["tantivy_ms"] = yardstick(folder / "tantivy", table)
        print(f"tantivy, CPU ms: {extra['tantivy_ms']}")
    return found, extra


# What `getrusage` says of a new process begins with the peak of the one that started it.
BUILD = """
import re, sys
module = __import__(sys.argv[1])
module.dataset(sys.argv[2]).create_scalar_index("text", "INVERTED", {options})
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def peak_of_build(module: str, path: str) -> float:
    """Return the megabytes that a process takes at most that builds an index."""
    options = ", ".join(f"{name}={value!r}" for name, value in OPTIONS.items())
    program = [sys.executable, "-c", BUILD.format(options=options), module, path]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    return round(float(done.stdout.split()[-1]))


def yardstick(folder: Path, table: pa.Table) -> dict[str, float]:
    """Return what the same takes tantivy, in milliseconds of CPU."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True)
    builder.add_text_field("text", stored=False, tokenizer_name="default")
    folder.mkdir()
    index = tantivy.Index(builder.build(), path=str(folder))

    def build() -> None:
        writer = index.writer(num_threads=1)
        columns = (table["id"].to_pylist(), table["text"].to_pylist())
        for number, text in zip(*columns, strict=True):
            writer.add_document(tantivy.Document(id=number, text=text))
        writer.commit()

    times = {"build": measure(build).cpu_ms}
    index.reload()
    searcher = index.searcher()
    for name, words in YARDSTICK.items():
        query = index.parse_query(words, ["text"])

        def search(query: Any = query) -> None:
            for _ in range(50):
                hits = searcher.search(query, 10, count=False).hits
                _ = [searcher.doc(address)["id"] for _, address in hits]

        search()
        times[name] = min(measure(search).cpu_ms for _ in range(3)) / 50
    return {name: round(ms, 3) for name, ms in times.items()}


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

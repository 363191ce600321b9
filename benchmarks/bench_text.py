"""Text indices beside the reference: building them, and searching rare and frequent words.

python benchmarks/bench_text.py [--scale 1.0] [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, save

import lancelet
import lancelet.query

RESULTS = Path(__file__).parent / "results"
WORDS = 200_000
LENGTH = 50
OPTIONS = {"with_position": True, "stem": False, "remove_stop_words": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        results = cases(Path(folder), arguments.scale, arguments.rounds)
    save("text", results, {"scale": arguments.scale}, RESULTS)


def cases(folder: Path, scale: float, rounds: int) -> list[Comparison]:
    count = int(500_000 * scale)
    ours, theirs = str(folder / "ours"), str(folder / "theirs")
    for path in (ours, theirs):
        lancelet.write_dataset(table_of(count), path)

    def build(module: Any, path: str) -> Callable[[], object]:
        return lambda: module.dataset(path).create_scalar_index("text", "INVERTED", **OPTIONS)

    found = [compare(f"build {count:,}", build(lancelet, ours), build(lance, theirs), rounds=1)]
    for name, query in QUERIES.items():

        def search(module: Any, path: str, query: Any = query) -> Callable[[], object]:
            dataset = module.dataset(path)
            wanted = query(module.query)
            return lambda: dataset.to_table(columns=["id"], full_text_query=wanted, limit=10)

        found.append(
            compare(name, search(lancelet, ours), search(lance, theirs), rounds=rounds, repeat=10)
        )
    return found


QUERIES: dict[str, Callable[[Any], Any]] = {
    "rare word": lambda q: q.MatchQuery(word(150_000), "text"),
    "frequent word": lambda q: q.MatchQuery(word(0), "text"),
    "three frequent words": lambda q: q.MatchQuery(f"{word(0)} {word(1)} {word(2)}", "text"),
    "two words": lambda q: q.MatchQuery(f"{word(50)} {word(300)}", "text"),
    "phrase": lambda q: q.PhraseQuery(f"{word(5)} {word(9)}", "text"),
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

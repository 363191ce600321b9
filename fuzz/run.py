"""Fuzz every reader and print the number of inputs of each.

    python fuzz/run.py --seconds 600              shared by all readers
    python fuzz/run.py --seconds 60 index         shared by the readers of indices
    python fuzz/run.py --list

A finding ends the run: the input is kept in `build/fuzz`. With `--record` the counts are added to
the records.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.kit.records import append_record

FUZZ = Path(__file__).resolve().parent
TABLES = (
    *(f"data file {version}" for version in ("legacy", "2.0", "2.1", "2.2", "2.3")),
    *(
        f"index {kind}"
        for kind in (
            *("BTREE", "ZONEMAP", "BLOOMFILTER", "BITMAP", "LABEL_LIST", "NGRAM", "FM"),
            *("INVERTED", "IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_SQ"),
        )
    ),
    *("manifest", "transaction", "deletions", "tag", "branch", "shard", "log", "flushed table"),
)
"""The kinds of files of tables, as `tests/property/test_hostile_bytes.py` has them."""
BYTES = ("file", "manifest")
"""Readers that are given bytes without a table around them."""
LIMITS = ("-rss_limit_mb=2560", "-timeout=900", "-print_final_stats=1", "-verbosity=0")
COUNT = re.compile(r"stat::number_of_executed_units: *(\d+)")


def fuzz(name: str, command: list[str], seconds: int) -> int:
    """Fuzz one reader and return how many inputs it was given, or raise with what it says."""
    place = Path("build/fuzz") / name.replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    limits = (f"-max_total_time={seconds}", *LIMITS, f"-artifact_prefix={place}-")
    done = subprocess.run(
        [sys.executable, *command, *limits, str(place), *corpus(name)],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-8000:]}")
    found = COUNT.search(done.stderr)
    assert found is not None, done.stderr[-2000:]
    return int(found[1])


def corpus(name: str) -> list[str]:
    """Return the folder of the files to begin with."""
    folder = FUZZ / "corpus" / name.removeprefix("bytes of a ")
    return [str(folder)] if folder.is_dir() and name.startswith("bytes of a ") else []


def main() -> None:
    """Fuzz the requested readers."""
    parser = argparse.ArgumentParser(prog="python fuzz/run.py")
    parser.add_argument("--seconds", type=int, default=600, help="for all readers together")
    parser.add_argument("--record", action="store_true", help="add the counts to the records")
    parser.add_argument("--list", action="store_true", help="print the names of the readers")
    parser.add_argument("names", nargs="*", help="how the names of the readers begin; all of them")
    options = parser.parse_args()
    targets = {f"bytes of a {name}": [str(FUZZ / f"fuzz_{name}.py")] for name in BYTES}
    targets |= {name: [str(FUZZ / "fuzz_table.py"), name] for name in TABLES}
    chosen = {
        name: command
        for name, command in targets.items()
        if not options.names or name.startswith(tuple(options.names))
    }
    if options.list:
        print("\n".join(chosen))
        return
    seconds = max(1, options.seconds // len(chosen))
    counts = {}
    for name, command in chosen.items():
        count = fuzz(name, command, seconds)
        print(f"{name:20} {count:9,} inputs in {seconds} s", flush=True)
        counts[name] = {"inputs": count, "seconds": seconds}
    if options.record:
        append_record("fuzz", seconds * len(chosen), counts)


if __name__ == "__main__":
    main()

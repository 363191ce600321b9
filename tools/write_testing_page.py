"""Write the tables of docs/how_it_is_tested.md from the records: `make testing-page`.

A table is between two comments, and everything else of the page is written by hand:

    <!-- table: histories -->
    | Histories | ...
    <!-- end of table -->
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.kit.records import ROOT, Record, read_records
from tests.kit.simulation.searches import SEARCHES, Search, read_results

PAGE: Final = ROOT / "docs" / "how_it_is_tested.md"
_TABLE: Final = re.compile(r"(<!-- table: ([a-z ]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _commits(records: Sequence[Record]) -> str:
    names = dict.fromkeys(record.commit for record in records)
    return ", ".join(f"`{name}`" for name in names)


def histories() -> str:
    """Return the sums of the simulated histories by commit."""
    names = ("seeds", "steps", "operations", "acknowledged", "faults", "violations")
    header = ("Commit", "Histories", "Requests", "Operations", "Acknowledged", "Faults and pauses")
    records = read_records("simulate")
    rows: list[tuple[object, ...]] = []
    for commit in dict.fromkeys(record.commit for record in records):
        own = [record.counts for record in records if record.commit == commit]
        rows.append((f"`{commit}`", *(sum(each[name] for each in own) for name in names)))
    total = ("total", *(sum(record.counts[name] for record in records) for name in names))
    compared = sum(record.counts.get("compared", 0) for record in records)
    text = f"\n{compared:,} histories of one caller were compared with models.\n"
    return _table((*header, "Violations"), [*rows, total]) + text


def searches(group: str) -> Callable[[], str]:
    """Return a function that returns the table of a group of searches."""

    def table() -> str:
        results = read_results()
        is_bounded = group == "bounded"
        header = ["Scenario", "Faults", *(["Preemptions"] if is_bounded else [])]
        rows = []
        for search in SEARCHES[group]:
            result = results[search.name]
            bound = [search.switches_max] if is_bounded else []
            counts = [result["executions"], result["states"], f"`{result['commit']}`"]
            rows.append([_title(search), _faults(search), *bound, *counts])
        return _table([*header, "Executions", "States", "Commit"], rows)

    return table


def _title(search: Search) -> str:
    kinds = {"rows with stable ids": "stable row ids", "buffered threads": "without durable writes"}
    note = kinds.get(search.scenario)
    return search.title if note is None else f"{search.title}, {note}"


def _faults(search: Search) -> str:
    return "one failed request or lost response" if search.has_faults else "none"


def soak() -> str:
    """Return the sums of the long runs of processes."""
    records = read_records("soak")
    names = ("operations", "acknowledged", "versions", "violations")
    seconds = sum(record.seconds for record in records)
    kills, pauses = (sum(record.counts[name] for record in records) for name in ("kills", "pauses"))
    rows = []
    for library, key in (("lancelet", "ours"), ("pylance", "theirs")):
        sums = [sum(record.counts[key][name] for record in records) for name in names]
        rows.append([library, seconds, *sums[:3], kills, pauses, sums[3]])
    header = ("Library", "Seconds", "Operations", "Acknowledged", "Versions", "Kills", "Pauses")
    return _table((*header, "Violations"), rows) + f"\nCommits: {_commits(records)}.\n"


_FUZZED: Final = {
    "bytes of a file": "bytes of a data file",
    "bytes of a manifest": "bytes of a manifest",
    "data file": "data files of tables",
    "index": "indices of all kinds",
    "manifest": "manifests, transactions, deletion files",
    "transaction": "manifests, transactions, deletion files",
    "deletions": "manifests, transactions, deletion files",
    "tag": "tags and branches",
    "branch": "tags and branches",
    "shard": "shards: manifest, log, flushed tables",
    "log": "shards: manifest, log, flushed tables",
    "flushed table": "shards: manifest, log, flushed tables",
}


def fuzzing() -> str:
    """Return the sums of the fuzzers."""
    records = read_records("fuzz")
    inputs: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for record in records:
        for name, counts in record.counts.items():
            title = next(title for start, title in _FUZZED.items() if name.startswith(start))
            inputs[title] += counts["inputs"]
            seconds[title] += counts["seconds"]
    rows = [[title, seconds[title], inputs[title]] for title in dict.fromkeys(_FUZZED.values())]
    total = ["total", sum(seconds.values()), sum(inputs.values())]
    header = ("Input", "Seconds", "Inputs")
    return _table(header, [*rows, total]) + f"\nCommits: {_commits(records)}.\n"


_AREAS: Final = {
    "table/": "commits, conflicts, references, stores of versions",
    "change/": "changes of rows and columns",
    "upkeep/": "cleanup and compaction",
    "memwal/": "write-ahead log",
    "jobs/": "jobs",
    "spark/": "streams of Spark",
}


def mutants() -> str:
    """Return the scores of the mutants."""
    tool = _mutants_tool()
    records = list(tool.read_records().values())
    header = ("Code", "Mutants", "Equivalent", "Detected", "Not detected", "Detected of 100")
    rows = []
    for start, title in [*_AREAS.items(), ("", "total")]:
        rows.append([title, *_score(tool.summary(r for r in records if r.file.startswith(start)))])
    said = tool.summary(records)
    histories = (
        f"\nSimulated histories and searches alone detect {said['killed_by_histories']} of the "
        f"{said['protocol']} mutants of commits, references, cleanup and the log that are not "
        f"equivalent.\n"
    )
    missed = [record for record in records if not record.is_found and record.reason is None]
    names = "".join(
        f"- `{each.file}`, `{each.function}`: {each.kind} of `{' '.join(each.before.split())}`\n"
        for each in sorted(missed, key=lambda each: (each.file, each.line))
    )
    return _table(header, rows) + histories + (f"\nNot detected:\n\n{names}" if names else "")


def _score(said: dict[str, int]) -> list[object]:
    real = said["killed"] + said["survived"]
    share: object = round(100 * said["killed"] / real) if real else ""
    return [said["mutants"], said["equivalent"], said["killed"], said["survived"], share]


def _mutants_tool() -> Any:
    specification = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["mutants"] = module
    specification.loader.exec_module(module)
    return module


TABLES: Final[dict[str, Callable[[], str]]] = {
    "histories": histories,
    "searches of tables": searches("tables"),
    "searches of shards": searches("shards"),
    "bounded searches": searches("bounded"),
    "soak": soak,
    "fuzzing": fuzzing,
    "mutants": mutants,
}


def rendered(page: str) -> str:
    """Return the page with the tables of the current records."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> int:
    """Write the page, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = PAGE.read_text()
    expected = rendered(page)
    if not options.check:
        Path(PAGE).write_text(expected)
    elif page != expected:
        print("docs/how_it_is_tested.md does not match the records; run `make testing-page`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The recorded searches of interleavings: `python -m tests.kit.simulation.searches`.

    --missing          only those without a record
    rows "shard ab"    those whose names contain one of the texts

Each search is recorded with its counts and its commit; the records of short searches are recounted
by a test, so that they describe the current code.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from tests.kit.records import ROOT, current_commit
from tests.kit.simulation import casts
from tests.kit.simulation.casts import Scene, Stage
from tests.kit.simulation.interleavings import Counts, Explorer
from tests.kit.simulation.machine import Fate
from tests.kit.simulation.row_casts import RowStage
from tests.kit.simulation.shard_casts import ShardStage

RESULTS: Final = ROOT / "tests" / "simulation" / "results" / "interleavings.json"
_FAULTS: Final[tuple[Fate, ...]] = ("refused", "lost")

Group: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Search:
    """A scenario with its actors, faults and the bound of preemptions."""

    title: str
    scenario: str
    """A function of `casts`, or the kind of a stage."""
    actors: str | None = None
    has_faults: bool = False
    switches_max: int | None = None

    @property
    def name(self) -> str:
        """The key of the record."""
        faults = " with faults" if self.has_faults else ""
        bound = "" if self.switches_max is None else f", at most {self.switches_max} preemptions"
        return f"{self.scenario} {self.actors or ''}".strip() + faults + bound

    def run(self) -> Counts:
        """Run the search; raise if it finds a violation."""
        stored, scene = self._scene()
        fates = _FAULTS if self.has_faults else ()
        return Explorer(stored, scene, fates=fates, switches_max=self.switches_max).run()

    def _scene(self) -> tuple[Mapping[str, Any], Scene]:
        match self.scenario:
            case "shard" | "new shard" | "threads" | "buffered threads":
                shards = _shards(is_new=self.scenario == "new shard")
                if "threads" not in self.scenario:
                    return shards.stored, shards.scene(self.actors or "")
                is_durable = self.scenario == "threads"
                return shards.stored, shards.scene_of_threads(
                    self.actors or "", is_durable=is_durable
                )
            case "rows" | "rows with stable ids":
                rows = _rows(stable_row_ids=self.scenario != "rows")
                return rows.stored, rows.scene(self.actors or "")
            case name:
                stage = _stage(_RECORDS.get(name, 0))
                more = () if self.actors is None else (self.actors,)
                return stage.stored, getattr(casts, name)(stage, *more)


_RECORDS: Final = {
    "two_cleanups": 4,
    "a_late_commit_and_joined_records": 4,
    "a_reader_and_vanishing_versions": 4,
    "a_tag_and_joined_records": 3,
}
"""The number of records of removed versions at the start."""


@cache
def _stage(num_records: int) -> Stage:
    return Stage.built(num_records)


@cache
def _shards(*, is_new: bool) -> ShardStage:
    return ShardStage.built(()) if is_new else ShardStage.built()


@cache
def _rows(*, stable_row_ids: bool) -> RowStage:
    return RowStage.built(stable_row_ids=stable_row_ids)


SEARCHES: Final[Mapping[Group, tuple[Search, ...]]] = {
    "tables": (
        Search("a tag, and a cleanup of the tagged version", "a_tag_and_a_cleanup"),
        Search("a tag, and a cleanup of the tagged version", "a_tag_and_a_cleanup", None, True),
        Search("a moved tag, and a cleanup of its new version", "a_moved_tag_and_a_cleanup"),
        Search("a new branch, and a cleanup of its version", "a_branch_and_a_cleanup"),
        Search("a reader, and versions that are cleaned up", "a_reader_and_vanishing_versions"),
        Search("external store: a writer and a reader", "an_external_store", "ar", True),
        Search("external store: two writers", "an_external_store", "ab"),
        Search("external store: two writers", "an_external_store", "ab", True),
        Search(
            "a commit, and another actor with two commits and a cleanup", "a_commit_and_cleanups"
        ),
        Search("a restore, and a cleanup of the restored version", "a_restore_and_a_cleanup"),
    ),
    "shards": (
        Search("two merges", "shard", "mn"),
        Search("a merge and a garbage collection", "shard", "mc"),
        Search("a writer and a garbage collection", "shard", "ac"),
        Search("a writer that flushes, and a merge", "shard", "fm"),
        Search("two writers", "shard", "ab"),
        Search("two merges", "shard", "mn", True),
        Search("a merge and a garbage collection", "shard", "mc", True),
        Search("a writer and a garbage collection", "shard", "ac", True),
        Search("a writer and a merge", "shard", "am", True),
        Search("the first writer of a shard, and removal of the log", "new shard", "xd"),
    ),
    "bounded": (
        Search("two commits and a cleanup", "two_commits_and_a_cleanup", None, False, 1),
        Search("two commits and a cleanup", "two_commits_and_a_cleanup", None, False, 2),
        Search("two commits and a cleanup", "two_commits_and_a_cleanup", None, True, 1),
        Search("external store: two writers and a reader", "an_external_store", "abr", False, 1),
        Search("external store: two writers and a reader", "an_external_store", "abr", False, 2),
        Search("external store: two writers and a reader", "an_external_store", "abr", True, 1),
        Search("two cleanups that merge records, and a commit", "two_cleanups", None, False, 1),
        Search(
            "a late commit, and merged records", "a_late_commit_and_joined_records", None, False, 1
        ),
        Search(
            "a tag, a cleanup, and another one that merges records",
            "a_tag_and_joined_records",
            None,
            False,
            1,
        ),
        Search(
            "a tag, a cleanup, and another one that merges records",
            "a_tag_and_joined_records",
            None,
            False,
            2,
        ),
        *(
            Search(title, scenario, who, False, 1)
            for scenario in ("rows", "rows with stable ids")
            for who, title in {
                "de": "two deletions in one fragment",
                "du": "a deletion and an update in one fragment",
                "dc": "a deletion and a compaction",
                "dp": "a deletion and the commit of an earlier compaction",
                "wu": "a rewritten column and an update of the same row",
                "wd": "a rewritten column and a deletion in one fragment",
                "wc": "a rewritten column and a compaction",
                "mf": "a merge of one column and a deletion in one fragment",
                "kd": "an added column and a deletion",
                "kc": "an added column and a compaction",
                "st": "two drivers of one batch of a stream",
            }.items()
        ),
        *(
            Search(title, scenario, who, False, 1)
            for scenario in ("threads", "buffered threads")
            for who, title in {
                "pq": "two threads of a writer of a shard put rows",
                "pf": "one thread puts rows, another one flushes",
                "pv": "one thread puts rows, another one reads",
                "pqf": "two threads put rows, a third one flushes",
            }.items()
        ),
    ),
}
"""The searches by table of the documentation."""


def read_results() -> dict[str, dict[str, Any]]:
    """Return the records of the searches by name."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return found


def main() -> int:
    """Run the searches whose names contain an argument, or all, and record their counts."""
    is_missing = "--missing" in sys.argv
    patterns = [each for each in sys.argv[1:] if each != "--missing"] or [""]
    results = read_results() if RESULTS.exists() else {}
    searches = [search for group in SEARCHES.values() for search in group]
    for search in searches:
        is_selected = any(part in search.name for part in patterns)
        if not is_selected or (is_missing and search.name in results):
            continue
        started = time.process_time()
        counts = search.run()
        results[search.name] = {
            "executions": counts.executions,
            "states": counts.states,
            "requests": counts.steps,
            "cpu_seconds": round(time.process_time() - started, 1),
            "commit": current_commit(),
        }
        print(search.name, results[search.name], flush=True)  # noqa: T201 - a program
        ordered = {each.name: results[each.name] for each in searches if each.name in results}
        RESULTS.write_text(json.dumps(ordered, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

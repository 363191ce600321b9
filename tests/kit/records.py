"""Records of long runs: each run of `make simulate`, `make soak` and `make fuzz` adds a line.

    {"run": "simulate", "commit": "2de7defe", "date": "2026-11-28", "load": 1.2, "seconds": 600,
     "counts": {"seeds": 2000}}

A commit with a plus sign had uncommitted changes. `docs/how_it_is_tested.md` sums the records up.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDS: Final = ROOT / "tests" / "records.jsonl"


@dataclass(frozen=True, slots=True)
class Record:
    """A run with its counts."""

    run: str
    commit: str
    date: str
    load: float | None
    """The average load of the machine in the last minute, None if it was not recorded."""
    seconds: int
    counts: Mapping[str, Any]


def read_records(run: str) -> list[Record]:
    """Return the records of one kind of run, oldest first."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    records = [Record(**json.loads(line)) for line in lines]
    return [record for record in records if record.run == run]


def append_record(run: str, seconds: float, counts: Mapping[str, Any]) -> Record:
    """Add a record of a run that has just ended."""
    today = datetime.now(UTC).date().isoformat()
    load = round(os.getloadavg()[0], 1)
    record = Record(run, current_commit(), today, load, round(seconds), counts)
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")
    return record


def current_commit() -> str:
    """Return the commit of the working tree, with a plus sign if its sources have changed."""
    changed = _git("status", "--porcelain", "--", "src", "tests/kit")
    return _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()

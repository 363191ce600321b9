"""Goal: the page that says how much was run gives the figures of the runs that were recorded."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "simulation" / "results"


def test_the_page_gives_the_recorded_figures() -> None:
    page = (ROOT / "docs" / "how_it_is_tested.md").read_text()
    runs = json.loads((RESULTS / "histories.json").read_text())
    figures = ("seeds", "steps", "operations", "acknowledged", "faults", "violations")
    sums = [sum(run[name] for run in runs) for name in figures]
    assert "| " + " | ".join(f"{each:,}" for each in sums) + " |" in page
    for each in json.loads((RESULTS / "interleavings.json").read_text()):
        assert f"| {each['executions']:,} | {each['states']:,} |" in page

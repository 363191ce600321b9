"""Goal: the documentation gives the figures of the recorded simulation runs."""

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
    for library in ("ours", "theirs"):
        soaks = json.loads((ROOT / "tests" / "soak" / "results.json").read_text())
        done, told, versions, wrong = (
            sum(run[library][name] for run in soaks)
            for name in ("operations", "acknowledged", "versions", "violations")
        )
        assert f"| {done:,} | {told:,} | {versions:,} |" in page
        assert library == "theirs" or wrong == 0
    fuzzed = json.loads((ROOT / "fuzz" / "executions.json").read_text())
    assert f"These are {sum(each['inputs'] for each in fuzzed.values()):,} inputs" in page

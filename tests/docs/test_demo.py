"""Run the demo, which checks its own results."""

import subprocess
import sys
from pathlib import Path

import lance
import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "demo" / "pipeline.py"
SECONDS_MAX = 300


def run(folder, rows):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--folder", str(folder), "--rows", str(rows)],
        check=False,
        capture_output=True,
        text=True,
        timeout=4 * SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow  # the guides run the same steps
@pytest.mark.spark
@pytest.mark.parametrize("rows", [5_000, 1_000_000], ids=["small", "whole"])
def test_the_main_job_runs_through_and_reports(tmp_path, rows):
    printed = run(tmp_path, rows)
    words = ("stream, restarted", "Parquet", "Rewrite", "found by both", "have the same label")
    for word in words:
        assert word in printed
    folder = tmp_path / "pipeline"
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 4
    assert all(f"<td>by {name}<td>" in page for name in ("text", "vector", "both"))
    assert "http" not in page
    assert lance.dataset(str(folder / "orders.lance")).count_rows() > rows

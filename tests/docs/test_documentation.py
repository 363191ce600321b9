"""Every Python block of the documentation runs, page by page, in a folder of its own.

The blocks of a page share one namespace, as a reader's session would. A block whose fence says
`python no-run` is shown only; each such block says why in the text beside it.
"""

import re
import runpy
import sys
from pathlib import Path

import pytest

from lancelet.io.trace_events import LISTENERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def python_blocks(page):
    return BLOCK.findall(page.read_text())


@pytest.fixture
def nobody_listens_afterwards():
    """Pages may listen to what the process does, which other tests should not be told of."""
    yield
    LISTENERS.forget()


@pytest.mark.usefixtures("nobody_listens_afterwards")
@pytest.mark.parametrize(
    "page",
    # Pages about Spark run in the session of `tests/spark`.
    [page for page in PAGES if page.exists() and python_blocks(page) and "spark" not in page.parts],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_runs_from_the_top(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__documentation__"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.exists()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page):
    missing = [
        target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("script", [ROOT / "demo" / "files.py"], ids=lambda p: p.stem)
def test_demo_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--folder", str(tmp_path), "--small"])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_figures_are_those_of_the_results():
    report = runpy.run_path(str(ROOT / "benchmarks" / "report.py"))
    assert report["page"]() == (ROOT / "docs" / "benchmarks.md").read_text()
    for path, picture in report["pictures"]().items():
        assert path.read_text() == picture

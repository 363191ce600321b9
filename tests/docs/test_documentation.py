"""Run every Python block of the documentation and compare its output with the page.

The blocks of a page run in one namespace and in an empty folder. Blocks with the fence
`python {.no-run}` are not run; the text of the page states the reason.
"""

import re
import runpy
import sys
from pathlib import Path

import pytest

from lancelet.io.trace_events import EVENT_SINKS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGE_TOOL = runpy.run_path(str(ROOT / "tools" / "page_outputs.py"))
NEEDS_SPARK = PAGE_TOOL["needs_spark"]
# The site shows a block with another form of fence as plain text.
FENCE = re.compile(r"(python|python \{\.no-run\}|text|console|sh)?")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def python_blocks(page):
    return [block["code"] for block in PAGE_TOOL["BLOCK"].finditer(page.read_text())]


@pytest.fixture
def no_listeners_afterwards():
    """Remove the listeners that a page registers."""
    yield
    EVENT_SINKS.clear()


@pytest.mark.usefixtures("no_listeners_afterwards")
@pytest.mark.parametrize(
    "page",
    # Pages about Spark run in the session of `tests/spark`.
    [page for page in PAGES if page.exists() and python_blocks(page) and not NEEDS_SPARK(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_runs_and_prints_the_output_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = PAGE_TOOL["run_page"](page.read_text(), page)
    assert [(each.shown, each.printed) for each in examples if not each.matches] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.exists() and python_blocks(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_examples_print_results_instead_of_asserting_them(page):
    blocks = python_blocks(page)
    asserted = [block for block in blocks if re.search(r"^ *assert ", block, re.MULTILINE)]
    assert asserted == []
    if page.stem != "training_run":  # its output is a figure
        assert "print(" in "".join(blocks) or ".show(" in "".join(blocks)


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


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.exists()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_fences_have_a_form_that_the_site_highlights(page):
    fences = re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)
    assert [fence for fence in fences if not FENCE.fullmatch(fence)] == []


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

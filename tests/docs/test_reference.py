"""Goal: the reference has every public name and every setting, and the site has every page."""

import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
API = DOCS / "reference/api"
MODULES = """
    aio arrow blob commit dataset file fragment indices mem_wal namespace optimize otel progress
    query sampler schema spark torch tracing training types udf util vector
"""


def named_on_pages():
    """Return the names that the pages of the reference render."""
    pages = "\n".join(page.read_text() for page in API.glob("*.md"))
    return re.findall(r"^::: (\S+)$", pages, re.MULTILINE)


def resolved(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute, None)


def test_every_public_name_is_in_the_reference():
    shown = {id(resolved(name)) for name in named_on_pages()}
    pages = "\n".join(page.read_text() for page in API.glob("*.md"))
    absent = []
    for module in ["lancelet", *(f"lancelet.{name}" for name in MODULES.split())]:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            is_ours = (getattr(value, "__module__", None) or "").startswith("lancelet")
            is_shown = id(value) in shown or issubclass_of_errors(value)
            is_shown |= f"## {module}.{name}\n" in pages
            if is_ours and (inspect.isclass(value) or inspect.isfunction(value)) and not is_shown:
                absent.append(f"{module}.{name}")
    assert absent == []


def issubclass_of_errors(value):
    """Return whether a value is an error, all of which one page shows."""
    return inspect.isclass(value) and value.__module__ == "lancelet.errors"


def test_the_reference_lists_every_public_name_once():
    names = named_on_pages()
    assert len(names) == len(set(names))
    gone = [name for name in names if name != "lancelet.errors" and resolved(name) is None]
    assert gone == []


def test_every_environment_variable_is_in_the_reference():
    page = (DOCS / "reference/configuration.md").read_text()
    named = re.compile(r'"((?:LANCE|LANCELET)_[A-Z_]+)"')
    sources = (path.read_text() for path in (ROOT / "src/lancelet").rglob("*.py"))
    variables = {name for text in sources if "environ" in text for name in named.findall(text)}
    variables -= {"LANCE_COMMIT_MESSAGE_KEY"}  # a name of Python, not of the environment
    assert {name for name in variables if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(DOCS)))
def test_the_site_leads_to_every_page(page):
    path = str(page.relative_to(DOCS))
    listed = (ROOT / "mkdocs.yml").read_text()
    if path.startswith("adr/"):
        listed = (DOCS / "adr/index.md").read_text() + "index.md"
        path = page.name
    assert path in listed


def test_the_command_line_picture_shows_real_output():
    tool = runpy.run_path(str(ROOT / "tools/draw_terminal.py"))
    # Sizes of files may differ by some bytes where another compression is installed.
    sizes = re.compile(r"[\d.]+ [KM]iB")
    found = sizes.sub("", tool["draw"](tool["printed"]()))
    assert found == sizes.sub("", tool["PICTURE"].read_text())


def test_the_picture_of_restarts_shows_a_run_that_reads_the_rows_of_an_uninterrupted_one():
    tool = runpy.run_path(str(ROOT / "tools/draw_restarts.py"))
    sessions, rows, expected = tool["run"]()
    assert len(sessions) > 50
    assert rows == expected
    assert tool["PICTURE"].read_text() == tool["draw"](sessions)


def test_pictures_are_those_that_the_tool_draws():
    tool = runpy.run_path(str(ROOT / "tools/draw_pictures.py"))
    for name, (boxes, arrows) in tool["PICTURES"].items():
        assert (DOCS / f"pictures/{name}.svg").read_text() == tool["draw"](boxes, arrows)

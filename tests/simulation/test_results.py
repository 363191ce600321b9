"""Goal: the documentation gives the figures of the records, and these describe the current code.

Method: the tables of the page are generated again. Short searches are counted again; a change of
the requests changes their counts, and `make searches testing-page` records them.
"""

import importlib.util
import sys

import pytest

from tests.kit.records import ROOT
from tests.kit.simulation.searches import SEARCHES, read_results

CPU_SECONDS_MAX = 1.2
"""Searches that took longer are not counted again."""


def test_the_page_has_the_tables_of_the_records(monkeypatch) -> None:
    path = ROOT / "tools" / "write_testing_page.py"
    specification = importlib.util.spec_from_file_location("write_testing_page", path)
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "write_testing_page", module)
    specification.loader.exec_module(module)
    page = module.PAGE.read_text()
    missing = [name for name in module.TABLES if f"<!-- table: {name} -->" not in page]
    assert missing == []
    assert page == module.rendered(page), "run `make testing-page`"


SHORT = [
    search
    for group in SEARCHES.values()
    for search in group
    if read_results()[search.name]["cpu_seconds"] <= CPU_SECONDS_MAX
]


@pytest.mark.parametrize("search", SHORT, ids=lambda search: search.name)
def test_a_search_has_the_recorded_counts(search) -> None:
    recorded = read_results()[search.name]
    counts = search.run()
    found = {"executions": counts.executions, "states": counts.states, "requests": counts.steps}
    assert found == {name: recorded[name] for name in found}, "run `make searches`"

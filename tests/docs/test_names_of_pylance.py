"""Goal: the page of differences from pylance says what is true."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools/list_api.py"))


def test_the_page_matches_the_code():
    page = (ROOT / "docs/reference/pylance.md").read_text()
    assert page == TOOL["render"](), "run tools/list_api.py"


def test_names_are_distinguished():
    name = TOOL["Name"]
    known = [
        name(1, "lance", "write_dataset"),
        name(1, "lance.dataset", "LanceDataset.commit"),
        name(1, "lance.dataset", "LanceOperation.UpdateMap"),
        name(1, "lance.fragment", "DataFile.path"),
        name(1, "lance.blob", "BlobFile.read_range"),
    ]
    unknown = [
        name(1, "lance", "no_such_name"),
        name(1, "lance.no_such_module", "Thing"),
        name(1, "lance.dataset", "LanceDataset.no_such_method"),
    ]
    assert all(map(TOOL["is_done"], known))
    assert not any(map(TOOL["is_done"], unknown))


def test_absent_arguments_and_those_without_effect_are_found():
    name = TOOL["Name"]
    scanner = name(1, "lance.dataset", "LanceDataset.to_table")
    assert TOOL["absent_arguments"](scanner) == []
    assert "batch_readahead" in dict(TOOL["without_effect"](scanner))
    assert TOOL["absent_arguments"](name(1, "lance", "no_such_name")) == []


def test_every_tier_has_names_and_no_name_is_listed_twice():
    names = TOOL["read_names"]()
    assert {each.tier for each in names} == {1, 2, 3}
    assert len({(each.module, each.path) for each in names}) == len(names) > 800


def test_rejected_names_are_names_of_pylance():
    paths = {each.path for each in TOOL["read_names"]()}
    assert TOOL["REFUSED_BY_PYLANCE"] <= paths

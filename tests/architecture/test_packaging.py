"""Published artifacts: wheels with and without kernels, the changelog, workflows."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
sys.path.insert(0, str(ROOT / "tools"))
from build_changelog import changelog, released_sections  # noqa: E402
from name_repository import with_absolute_links, with_urls  # noqa: E402

sys.path.pop(0)


@pytest.mark.slow
def test_an_install_without_a_compiler_is_pure_complete_and_warns_once():
    subprocess.run([sys.executable, ROOT / "tools" / "try_install.py", "--pure"], check=True)


def test_the_test_kit_is_not_in_wheels():
    packages = PROJECT["tool"]["scikit-build"]["wheel"]["packages"]
    assert packages == ["src/lancelet", "src/pyspark_lance"]
    assert not list((ROOT / "src").rglob("dataset_machine.py"))


def test_all_the_other_extras_of_clients_are_in_all():
    """`all` names extras that exist."""
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.removeprefix("lancelet[").removesuffix("]").split(","))
    assert named <= set(extras)


def test_a_release_names_the_repository_that_built_it():
    address = "https://host.example/owner/name"
    project = tomllib.loads(with_urls((ROOT / "pyproject.toml").read_text(), address, "v1.2.3"))
    urls = project["project"]["urls"]
    assert urls.items() > PROJECT["project"]["urls"].items()
    assert urls["Source"] == f"{address}/tree/v1.2.3"
    assert {"Homepage", "Documentation", "Changelog", "Issues"} < set(urls)
    readme = (ROOT / "README.md").read_text()
    linked = with_absolute_links(readme, address, "v1.2.3")
    assert f"]({address}/blob/v1.2.3/docs/quickstart.md)" in linked
    assert "](docs/" in readme
    assert re.findall(r"\]\((?!https://)[^)]*\)", linked) == []
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    assert workflow.count("tools/name_repository.py") == 2


def test_the_changelog_preserves_released_entries():
    released = "\n## 0.1.0\n\n- The first release.\n"
    text = changelog({"blobs": "Blobs are\nread.\n- And written."}, released)
    assert "### Blobs\n\n- Blobs are read.\n\n- And written.\n" in text
    assert released_sections(text) == released
    assert released_sections(changelog({}, "")) == ""


def test_the_readme_reads_well_on_a_package_index():
    """It says first how to install, and no link of a release needs the repository around it."""
    text = (ROOT / "README.md").read_text()
    text = with_absolute_links(text, "https://host.example/owner/name", "v1.2.3")
    assert text.index("pip install lancelet") < text.index("```python")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    named = re.findall(r"`((?:docs/)?[\w/]+(?:\.md|/))`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert "make demo" in text
    assert "make test" in text


def test_no_page_has_the_marks_of_a_conflict():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "mkdocs.yml"]
    marked = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [page.name for page in pages if marked.search(page.read_text())] == []

"""Write the address of the repository that builds a release into the metadata of the package.

    python tools/name_repository.py https://host/owner/name v0.2.0

adds the project URLs to `pyproject.toml`, and makes the relative links of `README.md` absolute, so
that the page of the package links to the source and the documentation. A working copy is changed,
not committed: the address is that of the workflow which runs, also in a fork.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
URLS = "[project.urls]\n"
PAGES = {
    "Homepage": "",
    "Source": "/tree/{ref}",
    "Documentation": "/tree/{ref}/docs",
    "Changelog": "/blob/{ref}/CHANGELOG.md",
    "Issues": "/issues",
}
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(#[^)]*)?\)")


def with_urls(project: str, address: str, ref: str) -> str:
    """Return the text of `pyproject.toml` with the URLs of a repository."""
    lines = "".join(f'{name} = "{address}{path.format(ref=ref)}"\n' for name, path in PAGES.items())
    if URLS not in project:
        raise ValueError("pyproject.toml has no section [project.urls]")
    return project.replace(URLS, URLS + lines, 1)


def with_absolute_links(readme: str, address: str, ref: str) -> str:
    """Return the text of a page with the relative links as links to the repository.

    >>> with_absolute_links("[why](docs/why.md#a)", "https://host/me/it", "v1")
    '[why](https://host/me/it/blob/v1/docs/why.md#a)'
    """
    return LINK.sub(lambda link: f"]({address}/blob/{ref}/{link[1]}{link[2] or ''})", readme)


def main(address: str, ref: str) -> None:
    """Change both files."""
    address = address.rstrip("/")
    for name, change in (("pyproject.toml", with_urls), ("README.md", with_absolute_links)):
        path = ROOT / name
        path.write_text(change(path.read_text(), address, ref))


if __name__ == "__main__":
    main(*sys.argv[1:])

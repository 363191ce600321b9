"""Write CHANGELOG.md from the released versions and the fragments in `changes/`.

    python tools/build_changelog.py            write it
    python tools/build_changelog.py --check    fail if it is out of date

A fragment is a file of sentences, one paragraph for each change, named by its subject. On a release
its section is given the version's number by hand, and the fragments are deleted.
"""

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
HEAD = "# Changes\n\nThe summary of each release.\n"
NEXT = "## Next release"


def changelog(fragments: dict[str, str], released: str) -> str:
    """Return the text of CHANGELOG.md from the fragments by name and the sections of releases."""
    lines = []
    for name, text in sorted(fragments.items()):
        subject = name.replace("-", " ").replace("_", " ").capitalize()
        lines.append(f"### {subject}\n")
        paragraphs = re.split(r"\n+(?=- |\n|[A-Z`])", text.strip())
        lines += [f"- {' '.join(part.removeprefix('- ').split())}\n" for part in paragraphs]
    body = "\n".join(lines)
    return f"{HEAD}\n{NEXT}\n\n{body}{released}"


def released_sections(text: str) -> str:
    """Return the released versions of CHANGELOG.md."""
    after = text.partition(NEXT)[2]
    head, mark, rest = after.partition("\n## ")
    return f"\n## {rest}" if mark and head else ""


def main() -> None:
    """Write the file or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    fragments = {
        path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "changes").glob("*.md")
    }
    present = CHANGELOG.read_text(encoding="utf-8") if CHANGELOG.exists() else ""
    wanted = changelog(fragments, released_sections(present))
    if parser.parse_args().check:
        if present != wanted:
            raise SystemExit("CHANGELOG.md is out of date; run `python tools/build_changelog.py`")
        return
    CHANGELOG.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()

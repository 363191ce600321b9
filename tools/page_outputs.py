"""Run the Python blocks of a documentation page and compare their output with the page.

A `python` block that prints is followed by a `text` block with its output. In the page, `...`
matches any text, as in doctests. A block with the fence `python {.no-run}` is not run.

    python tools/page_outputs.py docs/guide/*.md    insert or replace the outputs of these pages
"""

import contextlib
import doctest
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def needs_spark(page: Path) -> bool:
    """Return whether a page runs in the Spark session of the tests."""
    return "spark" in page.parts or page.match("recipes/backfill.md")


@dataclass(frozen=True)
class Example:
    """A Python block of a page, with the output that the page shows and the actual one."""

    code: str
    shown: str
    printed: str

    @property
    def matches(self) -> bool:
        """Return whether the page shows the actual output."""
        checker = doctest.OutputChecker()
        options = doctest.ELLIPSIS | doctest.REPORT_UDIFF
        return self.shown == self.printed or checker.check_output(self.shown, self.printed, options)


def run_page(
    text: str,
    path: Path,
    *,
    namespace: dict[str, object] | None = None,
    rewrite: Callable[[str], str] = str,
) -> list[Example]:
    """Run the blocks of a page in one namespace, and return its examples.

    `rewrite` is applied to the code of each block before it runs.
    """
    namespace = {"__name__": "__documentation__", **(namespace or {})}
    examples = []
    for block in BLOCK.finditer(text):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(compile(rewrite(block["code"]), str(path), "exec"), namespace)
        printed = "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
        shown = block["output"] or ""
        examples.append(Example(block["code"], shown, printed + "\n" if printed else ""))
    return examples


def with_outputs(text: str, examples: list[Example]) -> str:
    """Return the page with the actual output below each block whose shown output differs."""
    remaining = iter(examples)

    def replace(block: re.Match[str]) -> str:
        example = next(remaining)
        if example.matches:
            return block[0]
        code = f"```python\n{example.code}```\n"
        return code + (f"\n```text\n{example.printed}```\n" if example.printed else "")

    return BLOCK.sub(replace, text)


def main(paths: list[str]) -> None:
    """Update the outputs of pages, each run in an empty folder."""
    for path in [Path(each).resolve() for each in paths]:
        text = path.read_text()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            examples = run_page(text, path)
        updated = with_outputs(text, examples)
        if updated != text:
            path.write_text(updated)
            print(f"updated {os.path.relpath(path)}")


if __name__ == "__main__":
    main(sys.argv[1:])

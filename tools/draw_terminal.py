"""Draw the picture of the command line in the guide from the output of the commands.

    python tools/draw_terminal.py

The moments of versions are replaced, so that the picture changes only where the output does.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from pathlib import Path
from unittest import mock
from xml.sax.saxutils import escape

import numpy as np

import lancelet
from lancelet.cli.main import main as lancelet_command

PICTURE = Path(__file__).resolve().parent.parent / "docs/guide/pictures/command-line.svg"
COMMANDS = [
    "lancelet ls shop",
    "lancelet head shop/books.lance -n 3",
    "lancelet versions shop/books.lance",
    "lancelet search shop/books.lance --text fox -k 2 --columns id,title,_score",
    "lancelet check shop/books.lance --level checksums",
    'lancelet count shop/books.lance --filter "prce > 10"',
]
COLUMNS = 84
LINE, CHAR, EDGE = 18, 7.8, 14
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")
PART = re.compile(r"(\x1b\[[0-9;]*m)")
STYLES = {"\x1b[1m": ' font-weight="bold"', "\x1b[2m": ' fill="#808890"'}


class Terminal(io.StringIO):
    """What takes output as a terminal does."""

    def isatty(self) -> bool:
        """Claim to be a terminal."""
        return True


def fill(folder: Path) -> None:
    """Write the table that the picture shows."""
    texts = ["a fox and a river", "two dogs", "the quick brown fox"]
    rows = {
        "id": range(1, 301),
        "title": [f"Book {number}" for number in range(1, 301)],
        "price": [number % 40 + 0.5 for number in range(300)],
        "text": [texts[number % 3] for number in range(300)],
        "vector": np.arange(1200, dtype=np.float32).reshape(300, 4) / 4,
    }
    table = lancelet.write_dataset(rows, folder / "books.lance")
    table.create_scalar_index("text", "INVERTED")
    table.delete("price > 39")
    table.tags.create("spring", 1)


def printed() -> str:
    """Return the terminal output of the commands, each after its prompt."""
    shown = []
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS), "LINES": "40"}),
    ):
        os.environ.pop("NO_COLOR", None)
        try:
            os.chdir(folder)
            fill(Path("shop"))
            for command in COMMANDS:
                out, errors = Terminal(), io.StringIO()  # no bars, which show how long it took
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                    lancelet_command(shlex.split(command)[1:])
                shown.append(f"\x1b[1m$ {command}\x1b[0m\n{out.getvalue()}{errors.getvalue()}")
        finally:
            os.chdir(before)
    return MOMENT.sub("2026-01-31 12:00:00Z", "\n".join(shown)).rstrip("\n")


def draw(text: str) -> str:
    """Return output of a terminal, with bold and dim parts, as a picture."""
    lines = text.split("\n")
    width = max(len(PART.sub("", line)) for line in lines) * CHAR + 2 * EDGE
    height = len(lines) * LINE + 2 * EDGE
    size = f'width="{width:.0f}" height="{height}"'
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" {size}>',
        f'<rect {size} rx="8" fill="#1c2128"/>',
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#d5dbe2">',
    ]
    for number, line in enumerate(lines):
        style, at = "", 0
        for part in PART.split(line):
            if part.startswith("\x1b"):
                style = STYLES.get(part, "")
            elif part:
                x, y = EDGE + at * CHAR, EDGE + number * LINE + 13
                length = len(part) * CHAR
                drawn.append(
                    f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" xml:space="preserve"'
                    f"{style}>{escape(part)}</text>"
                )
                at += len(part)
    return "\n".join([*drawn, "</g>", "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(printed()), encoding="utf-8")

"""Draw the pictures of `docs/how_it_works.md` as SVG: boxes and arrows, for light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parent.parent / "docs/pictures"


class Box(NamedTuple):
    """A box at a column and row, with a title and a line below it."""

    column: float
    row: float
    title: str
    text: str = ""


PICTURES: dict[str, tuple[list[Box], list[tuple[int, int]]]] = {
    "table": (
        [
            Box(0, 1, "version 3", "_versions/3.manifest"),
            Box(1, 0, "fragment 0", "rows 0 to 999"),
            Box(1, 1, "fragment 1", "rows 1000 to 1499"),
            Box(1, 2, "index id_idx", "_indices/..."),
            Box(2, 0, "data file", "id, text"),
            Box(2, 1, "data file", "vector (added later)"),
            Box(2, 2, "deletion file", "_deletions/..."),
            Box(3, 0, "pages of id", ""),
            Box(3, 1, "pages of text", ""),
        ],
        [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5), (1, 6), (4, 7), (4, 8)],
    ),
    "read": (
        [
            Box(0, 1, "query", "filter, columns, limit"),
            Box(1, 1, "manifest", "which fragments"),
            Box(2, 0, "indices", "which rows may match"),
            Box(2, 2, "zone statistics", "which pages may match"),
            Box(3, 1, "pages", "ranges of bytes, joined"),
            Box(4, 1, "batches", "decoded on all CPUs"),
        ],
        [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)],
    ),
}

_STYLE = 'font-family="sans-serif" font-size="13" text-anchor="middle"'
_MARKER = 'id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"'
_TIP = '<path d="M0 0L8 4L0 8z" fill="#808890"/>'
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 160, 48, 44, 22, 10


def draw(boxes: list[Box], arrows: list[tuple[int, int]]) -> str:
    """Return a picture."""

    def left(box: Box) -> float:
        return EDGE + box.column * (WIDTH + GAP_X)

    def top(box: Box) -> float:
        return EDGE + box.row * (HEIGHT + GAP_Y)

    width = max(left(box) for box in boxes) + WIDTH + EDGE
    height = max(top(box) for box in boxes) + HEIGHT + EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {_STYLE}>',
        f"<defs><marker {_MARKER}>{_TIP}</marker></defs>",
    ]
    for source, target in arrows:
        x1, y1 = left(boxes[source]) + WIDTH, top(boxes[source]) + HEIGHT / 2
        x2, y2 = left(boxes[target]), top(boxes[target]) + HEIGHT / 2
        middle = (x1 + x2) / 2
        parts.append(
            f'<path d="M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"'
            ' fill="none" stroke="#808890" stroke-width="1.5" marker-end="url(#tip)"/>'
        )
    for box in boxes:
        x, y = left(box), top(box)
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"'
            ' fill="#e8f0f8" stroke="#4078a8"/>'
        )
        line = y + (HEIGHT / 2 + 5 if not box.text else 20)
        centre = x + WIDTH / 2
        parts.append(
            f'<text x="{centre:g}" y="{line:g}" fill="#102030" font-weight="bold">'
            f"{escape(box.title)}</text>"
        )
        if box.text:
            parts.append(
                f'<text x="{centre:g}" y="{y + 38:g}" fill="#405060">{escape(box.text)}</text>'
            )
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, (boxes, arrows) in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(boxes, arrows), encoding="utf-8")

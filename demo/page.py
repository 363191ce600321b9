"""The report as one page of HTML: plots are drawn in it, and nothing is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from report import Report

WIDTH, BAR, LABEL = 900, 22, 220
PIXEL = 7
PAGE = """<!doctype html>
<meta charset="utf-8"><title>lancelet: the main job</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; color: #223 }}
td, th {{ padding: .1em .8em; text-align: right }}
th:nth-child(2), td:nth-child(2) {{ text-align: left }}
svg {{ display: block; margin: 1em 0 }} h2 {{ margin-top: 2em }}
</style>
<h1>lancelet: the main job</h1>
<p>{rows:,} orders were written, streamed, embedded, merged, deleted, compacted and searched in
{seconds:.0f} seconds. Figures are of this machine.</p>
<h2>Seconds of each step</h2>{steps}
<h2>Bytes per row, as loaded</h2>{sizes}
<h2>Rows after each version</h2>{history}
<h2>Versions</h2>{versions}
<h2>Orders that searches found</h2><p>Looked for: {looked_for}.</p>{found}
<h2>Digits, and those most similar to each</h2>{similar}
"""


def write_page(report: Report, path: Path) -> Path:
    """Write the page and return where it is."""
    sizes = [(name, size / report.rows) for name, size in report.sizes.items()]
    text = PAGE.format(
        rows=report.rows,
        seconds=report.seconds,
        steps=bars([(step.name, step.seconds) for step in report.steps], "s"),
        sizes=bars(sizes, "bytes"),
        history=columns([(str(each.number), each.rows) for each in report.versions]),
        versions=version_table(report),
        looked_for=escape(report.looked_for),
        found=found_table(report),
        similar=pictures(report.similar),
    )
    path.write_text(text, encoding="utf-8")
    return path


def bars(values: Sequence[tuple[str, float]], unit: str) -> str:
    """Draw a bar for each value, from left to right."""
    most = max((value for _, value in values), default=0) or 1
    lines = []
    for line, (name, value) in enumerate(values):
        top = line * BAR
        width = (WIDTH - LABEL - 110) * value / most
        lines.append(
            f'<text x="{LABEL - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{LABEL}" y="{top + 3}" width="{width:.1f}" height="{BAR - 6}" rx="3" '
            f'fill="#3b6fb6"/><text x="{LABEL + width + 6:.1f}" y="{top + 15}">'
            f"{value:.2f} {unit}</text>"
        )
    return svg(WIDTH, len(values) * BAR, lines)


def columns(values: Sequence[tuple[str, float]]) -> str:
    """Draw a column for each value, from the bottom up."""
    height, foot = 160, 20
    most = max((value for _, value in values), default=0) or 1
    width = WIDTH / max(len(values), 1)
    lines = []
    for number, (name, value) in enumerate(values):
        tall = (height - 20) * value / most
        middle = (number + 0.5) * width
        lines.append(
            f'<rect x="{number * width + 4:.1f}" y="{height - tall:.1f}" width="{width - 8:.1f}" '
            f'height="{tall:.1f}" rx="3" fill="#5aa469"><title>{value:,} rows</title></rect>'
            f'<text x="{middle:.1f}" y="{height + 15}" text-anchor="middle">{escape(name)}</text>'
        )
    return svg(WIDTH, height + foot, lines)


def version_table(report: Report) -> str:
    """Return a table of the versions."""
    head = "<tr><th>version<th>operation<th>rows<th>fragments<th>MB</tr>"
    rows = [
        f"<tr><td>{each.number}<td>{escape(each.operation)}<td>{each.rows:,}<td>{each.fragments}"
        f"<td>{each.bytes / 1e6:.1f}</tr>"
        for each in report.versions
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def found_table(report: Report) -> str:
    """Return a table of what searches by text, by vector and by both found, best first."""
    head = "<tr><th>search<th>comment<th>order<th>score or distance</tr>"
    rows = [
        f"<tr><td>{escape(name)}<td>{escape(comment)}<td>{number}<td>{score:.4f}</tr>"
        for name, found in report.found.items()
        for number, comment, score in found
    ]
    return f"<table>{head}{''.join(rows)}</table>"


def pictures(lines: Sequence[Sequence[Sequence[float]]]) -> str:
    """Draw lines of pictures, the first of each apart from the others."""
    side = 8 * PIXEL + 8
    drawn = []
    for row, line in enumerate(lines):
        for column, pixels in enumerate(line):
            left = column * side + (24 if column else 0)
            drawn.extend(
                f'<rect x="{left + i % 8 * PIXEL}" y="{row * side + i // 8 * PIXEL}" '
                f'width="{PIXEL}" height="{PIXEL}" fill-opacity="{value / 16:.2f}"/>'
                for i, value in enumerate(pixels)
            )
    widest = max((len(line) for line in lines), default=0)
    return svg(widest * side + 24, len(lines) * side, drawn)


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """Return a drawing."""
    return f'<svg width="{width:.0f}" height="{height:.0f}">{"".join(parts)}</svg>'

"""Highlighted excerpts: the part of a text with the most query tokens, which are tagged.

For example:

    highlight("The red foxes run", {"fox"}, ...)      The red <b>foxes</b> run
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.index.text.analyzer import TextAnalyzer
from lancelet.values import dataclass

_ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class HighlightTags:
    """The tags before and after a matching word, and the maximum length of an excerpt."""

    before: str = "<b>"
    after: str = "</b>"
    chars_max: int = 160


def highlight(
    text: str, tokens: Collection[str], analyzer: TextAnalyzer, tags: HighlightTags
) -> str:
    """Return an excerpt with tagged tokens, or an empty string if there are none."""
    ranges = _token_ranges(text, tokens, analyzer)
    if not ranges:
        return ""
    start, stop = _best_excerpt(text, ranges, tags.chars_max)
    parts = [_ELLIPSIS if start else ""]
    at = start
    for first, last in ranges:
        if first >= start and last <= stop:
            parts += [text[at:first], tags.before, text[first:last], tags.after]
            at = last
    parts += [text[at:stop], _ELLIPSIS if stop < len(text) else ""]
    return "".join(parts)


def _token_ranges(
    text: str, tokens: Collection[str], analyzer: TextAnalyzer
) -> list[tuple[int, int]]:
    """Return the character ranges of tokens, with overlapping ranges merged."""
    data = text.encode()
    ranges: list[tuple[int, int]] = []
    for start, size, token in analyzer.token_ranges(pa.array([text], pa.large_string())):
        # Raw tokens changed by a model are stored after the text.
        if token not in tokens or start >= len(data):
            continue
        first = len(data[:start].decode())
        last = first + len(data[start : start + size].decode())
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(last, ranges[-1][1])
        else:
            ranges.append((first, last))
    return ranges


def _best_excerpt(text: str, ranges: list[tuple[int, int]], chars_max: int) -> tuple[int, int]:
    """Return the range with the most matches within `chars_max`, at word boundaries."""
    if len(text) <= chars_max:
        return 0, len(text)
    starts, ends = (np.array(each) for each in zip(*ranges, strict=True))
    num_reached = np.searchsorted(ends, starts + chars_max, side="right")
    best = int(np.argmax(num_reached - np.arange(len(starts))))
    last = int(ends[max(int(num_reached[best]) - 1, best)])
    spare = max(chars_max - (last - int(starts[best])), 0) // 2
    start = max(int(starts[best]) - spare, 0)
    stop = min(max(start + chars_max, last), len(text))
    blank = text.find(" ", start, int(starts[best])) if start else -1
    start = start if blank < 0 else blank + 1
    blank = text.rfind(" ", last, stop) if stop < len(text) else -1
    return start, stop if blank < 0 else blank

"""Where a text has the words of a query, marked in the part of it that has most of them.

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
class Marks:
    """What stands before and behind a word that was found, and how long a part of a text is."""

    before: str = "<b>"
    after: str = "</b>"
    chars_max: int = 160


def highlight(text: str, tokens: Collection[str], analyzer: TextAnalyzer, marks: Marks) -> str:
    """Return the part of a text with most of some tokens, these marked; nothing if it has none."""
    spans = _spans(text, tokens, analyzer)
    if not spans:
        return ""
    start, stop = _best_part(text, spans, marks.chars_max)
    pieces = [_ELLIPSIS if start else ""]
    at = start
    for first, last in spans:
        if first >= start and last <= stop:
            pieces += [text[at:first], marks.before, text[first:last], marks.after]
            at = last
    pieces += [text[at:stop], _ELLIPSIS if stop < len(text) else ""]
    return "".join(pieces)


def _spans(text: str, tokens: Collection[str], analyzer: TextAnalyzer) -> list[tuple[int, int]]:
    """Return where tokens begin and end, in characters; those that overlap are one."""
    data = text.encode()
    found: list[tuple[int, int]] = []
    for start, size, token in analyzer.pieces(pa.array([text], pa.large_string())):
        # What a model has made of words stands behind the text, and is not in it.
        if token not in tokens or start >= len(data):
            continue
        first = len(data[:start].decode())
        last = first + len(data[start : start + size].decode())
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def _best_part(text: str, spans: list[tuple[int, int]], chars_max: int) -> tuple[int, int]:
    """Return a part of so many characters at most that has most spans, cut between words."""
    if len(text) <= chars_max:
        return 0, len(text)
    starts, ends = (np.array(each) for each in zip(*spans, strict=True))
    reach = np.searchsorted(ends, starts + chars_max, side="right")
    best = int(np.argmax(reach - np.arange(len(starts))))
    last = int(ends[max(int(reach[best]) - 1, best)])
    spare = max(chars_max - (last - int(starts[best])), 0) // 2
    start = max(int(starts[best]) - spare, 0)
    stop = min(max(start + chars_max, last), len(text))
    blank = text.find(" ", start, int(starts[best])) if start else -1
    start = start if blank < 0 else blank + 1
    blank = text.rfind(" ", last, stop) if stop < len(text) else -1
    return start, stop if blank < 0 else blank

"""Segments of texts of any script: what lies between the places where words end.

    "can't stop, 3.14 ภาษาไทย"      can't  stop  3.14  ภาษา  ไทย

Words end where the rules of Unicode say so (UAX 29), seen from what stands before a place and, for
marks between letters or digits, from what comes after it. Runs of scripts that put no blanks
between words are cut by lists of words: the longest that matches, else all that words begin with
and one character more. The end of a stretch of one language may be left: it goes with what
follows, or is cut again if nothing does. Only segments with a letter or a digit are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.reference.characters import check_texts, read_character
from lancelet.kernels.segment_rules import (
    COMPLEX,
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
)

_Class = CharacterClass
_KERNEL: Final = "find_segments"

_LINES: Final = {_Class.CR, _Class.LF, _Class.NEWLINE}
_MARKS: Final = {_Class.EXTEND, _Class.FORMAT, _Class.ZWJ}
_PICTOGRAPHS: Final = {_Class.EXTENDED_PICTOGRAPHIC, _Class.PICTOGRAPHIC_LETTER}
_LETTERS: Final = {_Class.A_LETTER, _Class.HEBREW_LETTER, _Class.PICTOGRAPHIC_LETTER}
_WORD_CLASSES: Final = {*_LETTERS, _Class.NUMERIC}
_NAME_CLASSES: Final = {*_WORD_CLASSES, _Class.KATAKANA}

_ADJACENT_RULES: Final = (
    (_WORD_CLASSES, _WORD_CLASSES),
    ({_Class.HEBREW_LETTER}, {_Class.SINGLE_QUOTE}),
    ({_Class.KATAKANA}, {_Class.KATAKANA}),
    ({*_NAME_CLASSES, _Class.EXTEND_NUM_LET}, {_Class.EXTEND_NUM_LET}),
    ({_Class.EXTEND_NUM_LET}, _NAME_CLASSES),
)
"""No word ends between a character of the first classes and one of the second."""

_BETWEEN_RULES: Final = (
    ({_Class.MID_LETTER, _Class.MID_NUM_LET, _Class.SINGLE_QUOTE}, _LETTERS),
    ({_Class.DOUBLE_QUOTE}, {_Class.HEBREW_LETTER}),
    ({_Class.MID_NUM, _Class.MID_NUM_LET, _Class.SINGLE_QUOTE}, {_Class.NUMERIC}),
)
"""No word ends at a character of the first classes that stands between two of the second."""


def find_segments(
    offsets: Int64s, data: Bytes, members: Bytes, rules: SegmentRules, *, splits: bool
) -> tuple[Slices, Int64s, Int64s]:
    """Return the segments of texts that have a member, how many each text has, and languages met.

    Of each `Language` it is told how many stretches of it were cut. With `splits`, the runs of
    members in the segments are returned instead of these.
    """
    check_texts(offsets, data, kernel=_KERNEL)
    if not len(rules.units) == len(rules.children) == len(rules.num_children) == len(rules.is_word):
        raise corrupt(Fault.BAD_COUNT, kernel=_KERNEL, index=0)
    output = _Output(members, splits=splits)
    counts: list[int] = []
    language_counts = np.zeros(len(Language), np.int64)
    source = data.tobytes()
    for index, (start, stop) in enumerate(
        zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ):
        before = len(output.starts)
        _cut_text(_Text(source, start, stop, rules, index, language_counts), output)
        counts.append(len(output.starts) - before)
    sizes = np.array(output.ends, np.int64) - np.array(output.starts, np.int64)
    return (
        Slices(data, np.array(output.starts, np.int64), sizes),
        np.array(counts, np.int64),
        language_counts,
    )


class _Text:
    """The codes, classes and places of the characters of a text."""

    def __init__(
        self,
        data: bytes,
        start: int,
        stop: int,
        rules: SegmentRules,
        number: int,
        language_counts: Int64s,
    ) -> None:
        self.rules = rules
        self.number = number
        self.language_counts = language_counts
        self.codes: list[int] = []
        self.positions: list[int] = [start]
        while self.positions[-1] < stop:
            code, size = read_character(data, self.positions[-1], stop)
            self.codes.append(code)
            self.positions.append(self.positions[-1] + size)
        classes = rules.classes
        self.classes = [
            int(classes[code]) if code < len(classes) else _Class.OTHER for code in self.codes
        ]

    def next_class(self, at: int) -> int:
        """Return the class of the first character from a place on that is no mark."""
        rest = (kind for kind in self.classes[at:] if kind not in _MARKS)
        return next(rest, _Class.OTHER)

    def child(self, node: int, unit: int) -> int:
        first = int(self.rules.children[node])
        last = first + int(self.rules.num_children[node])
        if first < 0 or last > len(self.rules.units):
            raise corrupt(Fault.BAD_INDEX, kernel=_KERNEL, index=self.number)
        found = first + int(np.searchsorted(self.rules.units[first:last], unit))
        return found if found < last and self.rules.units[found] == unit else -1

    def step(self, node: int, code: int) -> int:
        """Return the node of what a node stands for and one more character, -1 if none."""
        units = np.frombuffer(chr(code).encode("utf-16-le", "surrogatepass"), "<u2")
        return reduce(lambda at, unit: -1 if at < 0 else self.child(at, int(unit)), units, node)


@dataclass
class _Output:
    """Takes characters and where segments end; keeps those with a member."""

    members: Bytes
    splits: bool = field(kw_only=True)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0
    has_member: bool = False

    def add(self, code: int, at: int, end: int) -> None:
        if code < len(self.members) * 8 and self.members[code >> 3] >> (code & 7) & 1:
            if self.splits and not self.has_member:
                self.start = at
            self.has_member = True
        elif self.splits:
            self.cut(at)
        self.end = end

    def cut(self, at: int) -> None:
        if self.has_member:
            self.starts.append(self.start)
            self.ends.append(self.end)
        self.has_member = False
        self.start = self.end = at


def _cut_text(text: _Text, output: _Output) -> None:
    before = _Context()
    positions = text.positions
    output.cut(positions[0])
    at = 0
    while at < len(text.codes):
        kind = text.classes[at]
        if kind >= COMPLEX:
            end = at
            while end < len(text.codes) and text.classes[end] >= COMPLEX:
                end += 1
            output.cut(positions[at])
            _cut_run(text, at, end, output)
            before = _Context()
            at = end
            continue
        if not before.joins(kind, partial(text.next_class, at + 1)):
            output.cut(positions[at])
        before.add(kind)
        output.add(text.codes[at], positions[at], positions[at + 1])
        at += 1
    output.cut(positions[-1])


@dataclass
class _Context:
    """What the rules look at before a place.

    Attributes:
        last: The class of the character before it.
        near: The last one that is no mark.
        far: The one before that.
        odd: Whether an odd number of halves of flags ends here.
    """

    last: int = _Class.OTHER
    near: int = _Class.OTHER
    far: int = _Class.OTHER
    odd: bool = False

    def add(self, kind: int) -> None:
        self.last = kind
        if kind in _MARKS:
            return
        self.odd = kind == _Class.REGIONAL_INDICATOR and not (
            self.near == _Class.REGIONAL_INDICATOR and self.odd
        )
        self.far, self.near = self.near, kind

    def joins(self, kind: int, next_class: Callable[[], int]) -> bool:
        """Return whether no word ends before a character of a class."""
        if (self.last, kind) == (_Class.CR, _Class.LF):
            return True
        if self.last in _LINES or kind in _LINES:
            return False
        if self.last == _Class.ZWJ and kind in _PICTOGRAPHS:
            return True
        if self.last == kind == _Class.W_SEG_SPACE or kind in _MARKS:
            return True
        if kind == _Class.REGIONAL_INDICATOR:
            return self.near == _Class.REGIONAL_INDICATOR and self.odd
        # UAX 29 has no such exception, but the reference's tables do.
        if (self.near, self.last, kind) == (
            _Class.KATAKANA, _Class.ZWJ, _Class.EXTEND_NUM_LET
        ):  # fmt: skip
            return False
        if any(self.near in left and kind in right for left, right in _ADJACENT_RULES):
            return True
        return any(
            (self.far in both and self.near in middle and kind in both)
            or (self.near in both and kind in middle and next_class() in both)
            for middle, both in _BETWEEN_RULES
        )


def _cut_run(text: _Text, start: int, stop: int, output: _Output) -> None:
    """Cut a run of scripts without blanks, stretch by stretch of one language."""
    while start < stop:
        for end in list(_ends_of_words(text, start, stop)):
            for at in range(start, end):
                output.add(text.codes[at], text.positions[at], text.positions[at + 1])
            output.cut(text.positions[end])
            start = end


def _ends_of_words(text: _Text, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        language = text.classes[start] - COMPLEX >> 3
        end = start
        while end < stop and text.classes[end] - COMPLEX >> 3 == language:
            end += 1
        if language < len(text.language_counts):
            text.language_counts[language] += 1
        if language == 0 or language > len(text.rules.units):
            yield end
        else:
            yield from _ends_of_listed_words(text, start, end, language - 1)
        start = end


def _ends_of_listed_words(text: _Text, start: int, stop: int, root: int) -> Iterator[int]:
    clusters = _ends_of_clusters(text, start, stop)
    at = start
    while at < stop:
        node, matched, cluster, inside = root, -1, -1, False
        while at < stop:
            node = text.step(node, text.codes[at])
            at += 1
            if node < 0:
                at = matched if matched >= 0 else at
                yield at
                break
            if not text.rules.is_word[node]:
                inside = True
                continue
            if text.rules.num_children[node] == 0:
                yield at
                break
            # A word may go on; what ends within a cluster is none.
            while cluster < at:
                cluster = next(clusters, stop)
            if cluster == at:
                matched = at
        else:
            if matched >= 0 or inside:
                yield matched if matched >= 0 else stop


def _ends_of_clusters(text: _Text, start: int, stop: int) -> Iterator[int]:
    """Yield where a stretch begins, and where each of its clusters ends."""
    yield start
    consonant = linked = False
    for at in range(start, stop):
        part = text.classes[at] & 7
        joins = part in (ClusterPart.MARK, ClusterPart.LINKER, ClusterPart.LINKED_MARK)
        if at > start and not joins and not (part == ClusterPart.CONSONANT and linked):
            yield at
        continues = consonant and part == ClusterPart.LINKED_MARK
        links = consonant and part == ClusterPart.LINKER
        linked = links or (continues and linked)
        consonant = part == ClusterPart.CONSONANT or links or continues
    yield stop

"""Word segmentation of texts in any script.

    "can't stop, 3.14 ภาษาไทย"      can't  stop  3.14  ภาษา  ไทย

Boundaries follow the Unicode rules (UAX 29), which depend on the preceding characters and, for
punctuation between letters or digits, on the next one. Runs of scripts without spaces are segmented
by dictionaries: the longest match, else the longest prefix of a word and one more character. The
unmatched end of a run joins the following text, or is segmented again at the end. Only segments
with a letter or digit are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels.reference.characters import check_texts, read_character
from lancelet.index.kernels.segments import (
    COMPLEX,
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
)
from lancelet.kernels.faults import Fault, corrupt

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
"""There is no boundary between a character of the first classes and one of the second."""

_BETWEEN_RULES: Final = (
    ({_Class.MID_LETTER, _Class.MID_NUM_LET, _Class.SINGLE_QUOTE}, _LETTERS),
    ({_Class.DOUBLE_QUOTE}, {_Class.HEBREW_LETTER}),
    ({_Class.MID_NUM, _Class.MID_NUM_LET, _Class.SINGLE_QUOTE}, {_Class.NUMERIC}),
)
"""There is no boundary at a character of the first classes between two of the second."""


def find_segments(
    offsets: Int64s, data: Bytes, members: Bytes, rules: SegmentRules, *, splits: bool
) -> tuple[ByteSlices, Int64s, Int64s]:
    """Return the segments with a member character, their number per text, and runs per language.

    With `splits`, the runs of member characters in the segments are returned instead.
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
        ByteSlices(data, np.array(output.starts, np.int64), sizes),
        np.array(counts, np.int64),
        language_counts,
    )


class _Text:
    """Code points, classes and positions of the characters of a text."""

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
        """Return the class of the first character from `at` on that is not ignored."""
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
        """Return the child node for one more character, or -1."""
        units = np.frombuffer(chr(code).encode("utf-16-le", "surrogatepass"), "<u2")
        return reduce(lambda at, unit: -1 if at < 0 else self.child(at, int(unit)), units, node)


@dataclass
class _Output:
    """Receives characters and boundaries; collects segments with a member."""

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
    """Context of the boundary rules.

    Attributes:
        last: Class of the preceding character.
        near: Class of the last character that is not ignored.
        far: Class of the one before.
        odd: Whether the number of preceding regional indicators is odd.
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
        """Return whether there is no boundary before a character class."""
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
    """Segment a run of scripts without spaces, by language."""
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
            # A longer word may follow; words must end at cluster boundaries.
            while cluster < at:
                cluster = next(clusters, stop)
            if cluster == at:
                matched = at
        else:
            if matched >= 0 or inside:
                yield matched if matched >= 0 else stop


def _ends_of_clusters(text: _Text, start: int, stop: int) -> Iterator[int]:
    """Yield the start of a run and the end of each grapheme cluster."""
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

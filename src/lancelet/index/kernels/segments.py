"""Rules of word segmentation for any script: character classes and dictionaries.

    a-z         A_LETTER                     adjacent letters are in one word
    0-9         NUMERIC
    '           SINGLE_QUOTE                 no boundary between letters or between digits
    Thai ko     complex_class(THAI, PLAIN)   scripts without spaces: segmented by dictionary

Classes are those of the Unicode property Word_Break, plus one per language with a dictionary and
cluster part. Words never end within a cluster.

The dictionaries are a forest of tries. A node is a word prefix; its children are adjacent, ordered
by their UTF-16 units.

    words to, too, a      nodes   0 root    1 a   2 t   3 to   4 too
                          unit              a     t     o      o
                          children 1..3     -     3     4      -
                          is a word         yes   no    yes    yes
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes
from lancelet.values import dataclass

COMPLEX: Final = 32
"""First class of scripts without spaces."""


class CharacterClass(IntEnum):
    """Character classes, numbered as in `native/index/segments.cpp`."""

    OTHER = 0
    CR = 1
    LF = 2
    NEWLINE = 3
    EXTEND = 4
    ZWJ = 5
    REGIONAL_INDICATOR = 6
    FORMAT = 7
    KATAKANA = 8
    HEBREW_LETTER = 9
    A_LETTER = 10
    SINGLE_QUOTE = 11
    DOUBLE_QUOTE = 12
    MID_NUM_LET = 13
    MID_LETTER = 14
    MID_NUM = 15
    NUMERIC = 16
    EXTEND_NUM_LET = 17
    W_SEG_SPACE = 18
    EXTENDED_PICTOGRAPHIC = 19
    PICTOGRAPHIC_LETTER = 20


class Language(IntEnum):
    """Languages without spaces between words, in the order of their roots in the forest."""

    UNLISTED = 0
    THAI = 1
    LAO = 2
    BURMESE = 3
    KHMER = 4
    CHINESE_JAPANESE = 5


class ClusterPart(IntEnum):
    """Role of a character in a cluster: marks join, and so do linked consonants."""

    PLAIN = 0
    MARK = 1
    CONSONANT = 2
    LINKER = 3
    LINKED_MARK = 4


def complex_class(language: Language, part: ClusterPart) -> int:
    """Return the character class of a language and cluster part.

    >>> complex_class(Language.THAI, ClusterPart.MARK)
    41
    """
    return COMPLEX + 8 * language + part


@dataclass(frozen=True, eq=False)
class SegmentRules:
    """Character classes and dictionaries.

    Attributes:
        classes: Class of each character by code point.
        units: Last UTF-16 unit of each node.
        children: First child of each node.
        num_children: Number of children of each node.
        is_word: Whether a word ends at each node.
    """

    classes: Bytes
    units: npt.NDArray[np.uint16]
    children: npt.NDArray[np.int32]
    num_children: npt.NDArray[np.uint16]
    is_word: Bytes

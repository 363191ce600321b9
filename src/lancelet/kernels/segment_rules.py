"""What texts of any script are cut by: a class for each character, and lists of words.

    a-z         A_LETTER                       letters beside letters are in one word
    0-9         NUMERIC
    '           SINGLE_QUOTE                 between letters, or between digits, it ends no word
    Thai ko     complex_class(THAI, PLAIN)   scripts without blanks: the words are looked up

The classes are those of the property Word_Break of Unicode, and one more for each language whose
words are listed, with the part that a character has in a cluster, which no word ends within.

The words of all languages are one forest. A node is what words begin with; its children are next
to each other, in the order of the UTF-16 units that they add.

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
"""Classes from here on are of scripts without blanks."""


class CharacterClass(IntEnum):
    """What a character is to the rules; `native/src/segments.cpp` has the same numbers."""

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
    """Languages that put no blanks between words; the forest has their roots in this order."""

    UNLISTED = 0
    THAI = 1
    LAO = 2
    BURMESE = 3
    KHMER = 4
    CHINESE_JAPANESE = 5


class ClusterPart(IntEnum):
    """What a character does in a cluster: a mark joins, and so do consonants that are linked."""

    PLAIN = 0
    MARK = 1
    CONSONANT = 2
    LINKER = 3
    LINKED_MARK = 4


def complex_class(language: Language, part: ClusterPart) -> int:
    """Return the class of characters of a language.

    >>> complex_class(Language.THAI, ClusterPart.MARK)
    41
    """
    return COMPLEX + 8 * language + part


@dataclass(frozen=True, eq=False)
class SegmentRules:
    """The class of each character and the words of each language.

    Attributes:
        classes: The class of each character, by its code.
        units: The last UTF-16 unit of what each node of the forest stands for.
        children: The first child of each node.
        num_children: How many children each has.
        is_word: Whether a word ends at each.
    """

    classes: Bytes
    units: npt.NDArray[np.uint16]
    children: npt.NDArray[np.int32]
    num_children: npt.NDArray[np.uint16]
    is_word: Bytes

"""Texts of any script cut into words: the tokenizers `icu` and `icu/split`.

    icu          can't 3.14 a_b 東京都に      can't  3.14  a_b  東京  都  に
    icu/split                                 can t  3 14  a b  東京  都  に

Words end by the rules of Unicode; the class of each character is data of this package, as an
index must find what it was built of. Chinese, Japanese, Thai, Lao, Burmese and Khmer put no blanks
between words: these are looked up in the lists of the ICU library, each read when it is needed.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.index.text.characters import class_ranges, letters_and_digits
from lancelet.index.text.icu_dictionary import WordTree, join_trees, read_words
from lancelet.index.text.packages import MissingPackageError
from lancelet.index.text.pieces import Cutter, Pieces, places_within, texts_of
from lancelet.index.text.system_icu import icu_library
from lancelet.kernels import (
    CharacterClass,
    ClusterPart,
    Language,
    SegmentRules,
    complex_class,
    find_segments,
)

_NUM_CHARACTERS: Final = 0x110000
_LISTS: Final = {
    Language.THAI: "thaidict",
    Language.LAO: "laodict",
    Language.BURMESE: "burmesedict",
    Language.KHMER: "khmerdict",
    Language.CHINESE_JAPANESE: "cjdict",
}
_RULES_KEPT: Final = 4
"""The rules for so many sets of languages are kept; their words are kept anyway."""

_UNLISTED: Final = WordTree(
    np.zeros(1, np.uint16), np.zeros(1, np.int32), np.zeros(1, np.uint16), np.zeros(1, np.uint8)
)


def segment_cutter(*, splits: bool) -> Cutter:
    """Return what cuts texts of any script."""
    return _Segmenter(splits=splits).cut


class _Segmenter:
    """Cuts texts; what languages it has met is remembered, as their words are read when met."""

    def __init__(self, *, splits: bool) -> None:
        self._splits = splits
        self._met: frozenset[Language] = frozenset()

    def cut(self, texts: pa.Array) -> Pieces:
        offsets, data = texts_of(texts)
        known = self._met
        while True:
            words, counts, stretches = find_segments(
                offsets, data, letters_and_digits(), _rules(known), splits=self._splits
            )
            met = known.union(language for language in _LISTS if stretches[language])
            if met == known:
                return words, places_within(counts), counts
            # Other threads may set it as well; what one of them forgets is only met again.
            self._met = known = met


@lru_cache(maxsize=_RULES_KEPT)
def _rules(languages: frozenset[Language]) -> SegmentRules:
    """Return the rules, with the words of some languages."""
    trees = [_words(name) if one in languages else _UNLISTED for one, name in _LISTS.items()]
    forest = join_trees(trees)
    return SegmentRules(
        _classes(), forest.units, forest.children, forest.num_children, forest.is_word
    )


@cache
def _words(name: str) -> WordTree:
    library = icu_library()
    if library is None:
        raise MissingPackageError(
            "texts in Chinese, Japanese, Thai, Lao, Burmese and Khmer are tokenized by "
            "dictionaries of the ICU library; install it (libicu) or the package PyICU, or choose "
            "another base_tokenizer",
            package="PyICU",
        )
    return read_words(library.dictionary(name))


@cache
def _classes() -> Bytes:
    """Return the class of each character."""
    classes = np.zeros(_NUM_CHARACTERS, np.uint8)
    for name, ranges in class_ranges():
        language, _, part = name.partition("+")
        number = (
            complex_class(Language[language], ClusterPart[part])
            if part
            else CharacterClass[name].value
        )
        for first, last in ranges:
            classes[first : last + 1] = number
    return classes

"""Segments of texts: the native code against the definition, and the rules by hand."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import ClusterPart, Language, SegmentRules, complex_class
from lancelet.index.text.characters import letters_and_digits

MEMBERS = letters_and_digits()
CLASSES = {
    "\r": 1, "\n": 2, "\u2028": 3, "\u0301": 4, "\u200d": 5, "🇦": 6, "\u00ad": 7, "ア": 8,
    "ש": 9, "a": 10, "b": 10, "'": 11, '"': 12, ".": 13, ":": 14, ",": 15, "1": 16, "_": 17,
    " ": 18, "😀": 19, "Ⓜ": 20,
}  # fmt: skip
WORDS = {Language.THAI: ["ก", "กข", "กขคง", "คง", "งก"], Language.KHMER: ["កក", "ក្ក", "កក្កក"]}
PARTS = {
    "ก": (Language.THAI, ClusterPart.PLAIN), "ข": (Language.THAI, ClusterPart.MARK),
    "ค": (Language.THAI, ClusterPart.PLAIN), "ง": (Language.THAI, ClusterPart.LINKED_MARK),
    "ក": (Language.KHMER, ClusterPart.CONSONANT), "្": (Language.KHMER, ClusterPart.LINKER),
    "៉": (Language.KHMER, ClusterPart.LINKED_MARK), "𑄀": (Language.UNLISTED, ClusterPart.PLAIN),
}  # fmt: skip
ALPHABET = "".join([*CLASSES, *PARTS, "!", "日"])


def forest(words):
    """Build the forest of the words of each language, level by level."""
    level = [(root, "") for root in range(len(Language) - 1)]
    units, children, num_children, is_word = [0] * len(level), [], [], []
    spelled = {
        root: {text.encode("utf-16-le").decode("utf-16-le") for text in words.get(root + 1, [])}
        for root, _ in level
    }
    while level:
        below = []
        for root, prefix in level:
            found = sorted(
                {w[len(prefix)] for w in spelled[root] if w.startswith(prefix) and w > prefix}
            )
            children.append(len(units))
            num_children.append(len(found))
            is_word.append(prefix in spelled[root])
            units += map(ord, found)
            below += [(root, prefix + letter) for letter in found]
        level = below
    return (
        np.array(units, np.uint16),
        np.array(children, np.int32),
        np.array(num_children, np.uint16),
        np.array(is_word, np.uint8),
    )


def rules():
    classes = np.zeros(0x110000, np.uint8)
    for letter, kind in CLASSES.items():
        classes[ord(letter)] = kind
    for letter, (language, part) in PARTS.items():
        classes[ord(letter)] = complex_class(language, part)
    return SegmentRules(classes, *forest(WORDS))


RULES = rules()


def is_member(letter):
    return bool(MEMBERS[ord(letter) >> 3] >> (ord(letter) & 7) & 1)


def joined(texts):
    parts = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(parts), np.uint8)


def pieces_of(slices):
    ends = slices.position + slices.size
    source = slices.source.tobytes()
    return [source[start:end].decode() for start, end in zip(slices.position, ends, strict=True)]


@given(texts=st.lists(st.text(alphabet=ALPHABET, max_size=14), max_size=5), splits=st.booleans())
def test_segments_are_as_they_are_defined(agree, texts, splits):
    slices, counts, met = agree("find_segments", *joined(texts), MEMBERS, RULES, splits=splits)
    assert isinstance(slices, ByteSlices)
    assert counts.sum() == len(slices)
    assert (met > 0).sum() == len({PARTS[c][0] for text in texts for c in text if c in PARTS})
    assert list(filter(is_member, "".join(pieces_of(slices)))) == list(
        filter(is_member, "".join(texts))
    )
    assert all(any(map(is_member, piece)) for piece in pieces_of(slices))


@given(data=st.binary(max_size=24), splits=st.booleans())
def test_bytes_that_are_no_text_are_cut_identically(agree, data, splits):
    offsets = np.array([0, len(data)], np.int64)
    agree("find_segments", offsets, np.frombuffer(data, np.uint8), MEMBERS, RULES, splits=splits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab a'b a' 'b", ["ab", "a'b", "a", "b"]),
        ("1.1 1,1 1. a.b a:b a,b 1:1", ["1.1", "1,1", "1", "a.b", "a:b", "a", "b", "1", "1"]),
        ("a1_b1 _a_ _ 1b", ["a1_b1", "_a_", "1b"]),
        ('ש"ש ש\'" a"b', ['ש"ש', "ש'", "a", "b"]),
        ("アアa ア_1 ア\u200d_", ["アア", "a", "ア_1", "ア\u200d"]),
        ("a\u0301'\u00adb a\u200d😀 Ⓜ\u200dⓂ", ["a\u0301'\u00adb", "a\u200d😀", "Ⓜ\u200dⓂ"]),
        ("a\r\nb\u2028\u0301b", ["a", "b", "b"]),
        ("aกขคงกขงกa", ["a", "กขคง", "กขง", "ก", "a"]),
        ("កក្កកកក៉", ["កក្កក", "កក៉"]),
        ("กขคកក", ["กข", "คកក"]),
        ("", []),
    ],
)
def test_words_end_according_to_the_rules(agree, text, expected):
    slices, _, _ = agree("find_segments", *joined([text]), MEMBERS, RULES, splits=False)
    assert pieces_of(slices) == expected


def test_flags_are_pairs(agree):
    members = np.full(0x110000 // 8, 255, np.uint8)
    slices, _, _ = agree("find_segments", *joined(["🇦" * 5]), members, RULES, splits=False)
    assert pieces_of(slices) == ["🇦🇦", "🇦🇦", "🇦"]


def test_texts_of_many_short_segments_are_cut_whole(agree):
    slices, counts, _ = agree("find_segments", *joined(["a " * 500]), MEMBERS, RULES, splits=False)
    assert pieces_of(slices) == ["a"] * 500
    assert counts.tolist() == [500]


@pytest.mark.parametrize("offsets", [[], [-1, 2], [0, 3, 1], [0, 9], [0, 1 << 62]])
def test_offsets_that_leave_their_bytes_are_rejected(agree, offsets):
    data = np.zeros(4, np.uint8)
    found = agree("find_segments", np.array(offsets, np.int64), data, MEMBERS, RULES, splits=False)
    assert found is CorruptDataError


@pytest.mark.parametrize(
    "changes",
    [
        {"children": RULES.children[:-1]},
        {"is_word": RULES.is_word[:-1]},
        {"children": RULES.children - 100},
        {"num_children": RULES.num_children + 1000},
    ],
)
def test_words_that_leave_their_forest_are_rejected(agree, changes):
    broken = dataclasses.replace(RULES, **changes)
    found = agree("find_segments", *joined(["กขคง"]), MEMBERS, broken, splits=False)
    assert found is CorruptDataError


def test_words_in_two_units_are_looked_up(agree):
    classes = np.zeros(0x110000, np.uint8)
    classes[[ord(letter) for letter in "𠀀𠀁"]] = complex_class(
        Language.CHINESE_JAPANESE, ClusterPart.PLAIN
    )
    units = np.array([0, 0, 0, 0, 0, 0xD840, 0xDC00, 0xD840, 0xDC01], np.uint16)
    children = np.array([5, 5, 5, 5, 5, 6, 7, 8, 9], np.int32)
    num_children = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0], np.uint16)
    is_word = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1], np.uint8)
    own = SegmentRules(classes, units, children, num_children, is_word)
    text = "𠀀𠀁𠀀𠀀𠀁𠀁"
    slices, _, _ = agree("find_segments", *joined([text]), MEMBERS, own, splits=False)
    assert pieces_of(slices) == ["𠀀𠀁", "𠀀𠀀", "𠀁", "𠀁"]

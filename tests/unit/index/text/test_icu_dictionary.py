"""Lists of words as ICU writes them: reading undoes writing, and damage is an error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import StorageError
from lancelet.index.text.icu_dictionary import join_trees, read_dictionary
from lancelet.index.text.segments import icu_library

BASE = 0xE00


class Writer:
    """Writes a trie of bytes, or of UTF-16 units with the value of each word given."""

    def __init__(self, is_units):
        self.is_units = is_units
        self.linear, self.most = (0x30, 16) if is_units else (0x10, 16)

    def number(self, value, limits, unit_bits, raw_units):
        """Write a number with as few units as hold it."""
        bases = [0, *limits]
        for more, (base, limit) in enumerate(zip(bases, limits, strict=False)):
            if more == len(limits) - len(raw_units):
                break
            if value >> unit_bits * more < limit - base:
                rest = [value >> unit_bits * k & (1 << unit_bits) - 1 for k in range(more)]
                return [base + (value >> unit_bits * more), *rest[::-1]]
        more = raw_units[-1]
        rest = [value >> unit_bits * k & (1 << unit_bits) - 1 for k in range(more)]
        return [limits[-1], *rest[::-1]]

    def value(self, value, *, is_final):
        if self.is_units:
            lead, *rest = self.number(value, (0x4000, 0x7FFF), 16, (2,))
            return [lead | 0x8000 * is_final, *rest]
        lead, *rest = self.number(value, (0x41, 0x5C, 0x6E, 0x6F), 8, (3, 4))
        return [lead + 0x10 << 1 | is_final, *rest]

    def delta(self, value):
        if self.is_units:
            return self.number(value, (0xFC00, 0xFFFF), 16, (2,))
        return self.number(value, (0xC0, 0xF0, 0xFE, 0xFF), 8, (3, 4))

    def node(self, words, value):
        """Write what words go on with; an empty one ends here."""
        ends, rest = () in words, sorted(word for word in words if word)
        if not rest:
            return self.value(value, is_final=True)
        follows = self.match(rest, value)
        if not ends:
            return follows
        if not self.is_units:
            return [*self.value(value, is_final=False), *follows]
        # The value is in the lead of the node.
        if value < 0x100:
            return [follows[0] | value + 1 << 6, *follows[1:]]
        return [follows[0] | 0x7FC0, value >> 16, value & 0xFFFF, *follows[1:]]

    def match(self, words, value):
        ways = sorted({word[0] for word in words})
        if len(ways) > 1:
            count = len(ways) - 1
            lead = [count] if count < self.linear else [0, count]
            return [*lead, *self.branch(ways, words, value)]
        common = 0
        while common < self.most and all(len(word) > common for word in words):
            if len({word[common] for word in words}) > 1:
                break
            common += 1
            if any(len(word) == common for word in words):
                break
        rest = self.node({word[common:] for word in words}, value)
        return [self.linear + common - 1, *words[0][:common], *rest]

    def branch(self, ways, words, value):
        if len(ways) > 5:
            half = len(ways) >> 1
            left = self.branch(ways[:half], words, value)
            right = self.branch(ways[half:], words, value)
            return [ways[half], *self.delta(len(right)), *right, *left]
        below = {way: self.node({w[1:] for w in words if w[0] == way}, value) for way in ways}
        last = ways[-1]
        listed, others = [last, *below[last]], []
        for way in reversed(ways[:-1]):
            if {w[1:] for w in words if w[0] == way} == {()}:
                listed = [way, *self.value(value, is_final=True), *listed]
            else:
                listed = [way, *self.value(len(listed) + len(others), is_final=False), *listed]
                others += below[way]
        return listed + others


def written(words, value, *, is_units):
    spelled = {
        tuple(np.frombuffer(word.encode("utf-16-le"), "<u2").tolist()) for word in words
    } if is_units else {tuple(ord(letter) - BASE for letter in word) for word in words}  # fmt: skip
    units = np.array(Writer(is_units).node(spelled, value), np.uint16 if is_units else np.uint8)
    kind, transform = (1 | 8, 0) if is_units else (0, 0x1000000 | BASE)
    size = 32 + units.nbytes
    return (
        np.array([32, size, size, size, kind, transform, 0, 0], np.int32).tobytes()
        + units.tobytes()
    )


def spelled(tree, root=0):
    found, todo = set(), [(root, b"")]
    while todo:
        node, prefix = todo.pop()
        if tree.is_word[node]:
            found.add(prefix.decode("utf-16-le"))
        first = int(tree.children[node])
        below = range(first, first + int(tree.num_children[node]))
        assert tree.units[first : below.stop].tolist() == sorted(tree.units[first : below.stop])
        todo += [(child, prefix + int(tree.units[child]).to_bytes(2, "little")) for child in below]
    return found


LETTERS = [chr(BASE + code) for code in (1, 2, 3, 9, 30, 48, 64, 90, 127, 200, 255)]
THAI = st.sets(st.text(alphabet=LETTERS, min_size=1, max_size=20), min_size=1, max_size=60)
HAN = st.sets(
    st.text(
        st.sampled_from([*(chr(0x4E00 + k) for k in range(80)), "𠀀", "𠮷"]),
        min_size=1,
        max_size=20,
    ),
    min_size=1,
    max_size=60,
)


@given(words=THAI, value=st.sampled_from([0, 70, 30_000, 1 << 21, 1 << 27]))
def test_words_of_bytes_are_read_as_written(words, value):
    assert spelled(read_dictionary(written(words, value, is_units=False))) == words


@given(words=HAN, value=st.sampled_from([0, 255, 256, 1 << 18, 1 << 30]))
def test_words_of_units_are_read_as_written(words, value):
    assert spelled(read_dictionary(written(words, value, is_units=True))) == words


@pytest.mark.parametrize("is_units", [False, True])
def test_distant_paths_are_found(is_units):
    words = {
        chr(BASE + first) + chr(BASE + second) * 48 + chr(BASE + first)
        for first in range(1, 41)
        for second in range(1, 41)
    }
    assert spelled(read_dictionary(written(words, 0, is_units=is_units))) == words


def test_trees_are_joined_roots_first():
    parts = [{"กข", "ก"}, {"ขค"}, {"ค", "คก", "คข"}]
    forest = join_trees([read_dictionary(written(words, 0, is_units=False)) for words in parts])
    assert [spelled(forest, root) for root in range(3)] == parts
    assert len(forest.units) == 3 + 2 + 2 + 3


@given(words=THAI, place=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_damage_is_an_error_or_other_words(words, place, byte, cut):
    data = bytearray(written(words, 0, is_units=False))
    at = int(place * (len(data) - 1))
    data[at] = byte
    try:
        spelled(read_dictionary(bytes(data[:at] if cut else data)))
    except StorageError as error:
        assert "damaged" in str(error)  # noqa: PT017


def test_a_trie_whose_ways_double_at_every_level_is_rejected():
    header = np.array([32, 64, 64, 64, 1, 0, 0, 0], np.int32).tobytes()
    # Two ways, the first of which leads to where the second does.
    units = np.array([1, 65, 1, 66] * 40 + [0x8000], np.uint16)
    with pytest.raises(StorageError, match="damaged"):
        read_dictionary(header + units.tobytes())


def test_lists_of_the_library_have_words():
    library = icu_library()
    assert library is not None
    assert {"ภาษา", "ไทย"} <= spelled(read_dictionary(library.dictionary("thaidict")))
    with pytest.raises(StorageError, match="lacks a dictionary") as caught:
        library.dictionary("nodict")
    assert caught.value.facts["name"] == "nodict"

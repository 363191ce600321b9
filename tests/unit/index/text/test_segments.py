"""Words of any script: each language's list is read when it is met, and asked for by name."""

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pytest

from lancelet.errors import UnsupportedError
from lancelet.index.text import segments
from lancelet.index.text.segments import Library, icu_library, make_segment_tokenizer


def cut(texts, *, splits=False):
    words, positions, counts = make_segment_tokenizer(splits=splits)(pa.array(texts, pa.string()))
    source = words.source.tobytes()
    places = zip(words.position.tolist(), words.size.tolist(), strict=True)
    found = iter([source[start : start + size].decode() for start, size in places])
    assert positions.tolist() == [place for count in counts for place in range(count)]
    return [[next(found) for _ in range(count)] for count in counts.tolist()]


@pytest.fixture
def fresh():
    """Forget the words that were read, before and after."""

    def forget():
        for cache in (segments._read_dictionary, segments._rules, icu_library):
            cache.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture
def no_library(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "icu._icu_", None)
    monkeypatch.setattr(segments.ctypes.util, "find_library", lambda _: None)


def test_texts_are_cut_into_words():
    texts = ["can't 3.14 a_b", None, "", "東京都に行く", "ภาษาไทยง่าย hello"]
    assert cut(texts) == [
        ["can't", "3.14", "a_b"], [], [], ["東京", "都", "に", "行く"],
        ["ภาษา", "ไทย", "ง่าย", "hello"],
    ]  # fmt: skip
    assert cut(texts[:1], splits=True) == [["can", "t", "3", "14", "a", "b"]]
    assert cut(pa.array(texts)[3:]) == cut(texts[3:])


def test_words_are_read_when_they_are_met(fresh):
    assert cut(["only latin, кириллица, עברית, العربية"]) == [
        ["only", "latin", "кириллица", "עברית", "العربية"]
    ]
    assert segments._read_dictionary.cache_info().misses == 0
    cut(["ลาว and ລາວ"])
    assert segments._read_dictionary.cache_info().misses == 2


def test_without_the_library_only_texts_that_need_it_are_rejected(no_library):
    assert cut(["word by word"]) == [["word", "by", "word"]]
    with pytest.raises(UnsupportedError, match="PyICU") as caught:
        cut(["東京"])
    assert caught.value.facts["package"] == "PyICU"
    assert isinstance(caught.value, OSError)


def test_the_library_of_the_package_comes_first(fresh, monkeypatch):
    own = icu_library()
    assert own is not None
    package = SimpleNamespace(__file__=own.path, ICU_VERSION=f"{own.version}.1")
    monkeypatch.setitem(sys.modules, "icu._icu_", package)
    monkeypatch.setattr(segments.ctypes.util, "find_library", lambda _: None)
    icu_library.cache_clear()
    assert isinstance(icu_library(), Library)
    assert cut(["東京都"]) == [["東京", "都"]]


@pytest.mark.parametrize("path", ["libnone.so.72", None])
def test_a_library_that_cannot_be_used_is_passed_over(fresh, monkeypatch, path):
    path = path or icu_library().path
    package = SimpleNamespace(__file__=path, ICU_VERSION="1.0")
    monkeypatch.setitem(sys.modules, "icu._icu_", package)
    icu_library.cache_clear()
    assert icu_library() is not None
    assert cut(["東京都"]) == [["東京", "都"]]


def test_texts_are_cut_on_many_threads_at_once(fresh):
    shared = make_segment_tokenizer(splits=False)
    texts = ["東京都に", "ภาษาไทย", "ພາສາລາວ", "one two"] * 25

    def words_of(text):
        words, _, _ = shared(pa.array([text]))
        source = words.source.tobytes()
        ends = (words.position + words.size).tolist()
        return [source[a:b].decode() for a, b in zip(words.position.tolist(), ends, strict=True)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(words_of, texts)) == cut(texts)

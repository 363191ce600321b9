"""Tokenizers that need a package or a model say what is missing."""

import ctypes.util
import sys
from concurrent.futures import ThreadPoolExecutor

import lance
import pytest

import lancelet
from lancelet.errors import InvalidInputError, StorageError, UnsupportedError
from lancelet.index.text import models
from lancelet.index.text.models import HOME_VARIABLE, model_cutter
from lancelet.index.text.system_icu import system_icu


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    (tmp_path / "jieba" / "default").mkdir(parents=True)
    (tmp_path / "lindera" / "own").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("lindera/own", "lindera", "lindera"), ("icu", "icu", "PyICU"), ("icu/split", "icu", "PyICU")],
)
def test_a_package_that_is_missing_is_named(home, monkeypatch, name, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(models, "system_icu", lambda: None)
    models._icu.cache_clear()
    with pytest.raises(UnsupportedError, match=package):
        model_cutter(name)


@pytest.mark.parametrize("name", ["jieba/none", "lindera/none"])
def test_a_model_that_is_missing_is_named(home, name):
    with pytest.raises(InvalidInputError, match=f"Invalid directory path: .*{name}"):
        model_cutter(name)


@pytest.mark.parametrize("name", ["icu/other", "lindera", "other/model"])
def test_an_unknown_name_is_refused(home, name):
    with pytest.raises(InvalidInputError, match="unknown base tokenizer"):
        model_cutter(name)


@pytest.mark.parametrize("config", ["{", "[]", '{"main": "none.txt"}', '{"users": ["none.txt"]}'])
def test_dictionaries_that_cannot_be_read_are_named(home, config):
    folder = home / "jieba" / "default"
    (folder / "dict.txt").write_text("word 3 n\n")
    (folder / "config.json").write_text(config)
    with pytest.raises(StorageError, match=r"config\.json|none\.txt"):
        model_cutter("jieba")


TEXTS = [
    "Hello, こんにちは世界!",
    "hello_world alpha.beta it's 3.14 a@b.cd",
    "the 的 lance data",
    "ภาษาไทย ง่าย 中华人民共和国 東京都",
    "\U0001d518\U0001d52b\U0001d526 e\u0301 naïve \U0001f600 word",
    "",
]


@pytest.mark.parametrize("name", ["icu", "icu/split"])
def test_the_library_of_the_system_cuts_as_the_reference_does(monkeypatch, name):
    monkeypatch.setattr(models, "_is_installed", lambda _: False)
    models._icu.cache_clear()
    if system_icu() is None:
        assert ctypes.util.find_library("icuuc") is None
        return
    options = {"base_tokenizer": name, "stem": False, "remove_stop_words": False}
    for text in TEXTS:
        theirs, ours = (
            [(token.text, token.position) for token in module.tokenize(text, **options)]
            for module in (lance, lancelet)
        )
        assert ours == theirs
    models._icu.cache_clear()


def test_stop_words_of_all_languages_are_left_out_of_texts_in_any_script(monkeypatch):
    monkeypatch.setattr(models, "_is_installed", lambda _: False)
    models._icu.cache_clear()
    if system_icu() is None:
        assert ctypes.util.find_library("icuuc") is None
        return
    text = "the 的 lance der и の och data 是 これ a por 그 useful"
    theirs, ours = (
        [token.text for token in module.tokenize(text, base_tokenizer="icu", stem=False)]
        for module in (lance, lancelet)
    )
    assert ours == theirs == ["lance", "data", "useful"]
    models._icu.cache_clear()


def test_texts_are_split_on_many_threads_at_once():
    split = system_icu()
    if split is None:
        assert ctypes.util.find_library("icuuc") is None
        return
    texts = [f"one {number} two" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: "".join(split(text)), texts)) == texts
    first, second = split("a b"), split("c d")
    assert [*first, *second] == ["a", " ", "b", "c", " ", "d"]

"""Errors of tokenizers name the missing package or model."""

import sys

import pytest

from lancelet.errors import InvalidInputError, StorageError, UnsupportedError
from lancelet.index.text.models import HOME_VARIABLE, make_model_tokenizer


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    (tmp_path / "jieba" / "default").mkdir(parents=True)
    (tmp_path / "lindera" / "own").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(("name", "package"), [("lindera/own", "lindera"), ("jieba", "jieba")])
def test_a_package_that_is_missing_is_named(home, monkeypatch, name, package):
    (home / "jieba" / "default" / "dict.txt").write_text("word 3 n\n")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=package):
        make_model_tokenizer(name)


@pytest.mark.parametrize("name", ["jieba/none", "lindera/none"])
def test_a_model_that_is_missing_is_named(home, name):
    with pytest.raises(InvalidInputError, match=f"Invalid directory path: .*{name}"):
        make_model_tokenizer(name)


@pytest.mark.parametrize("name", ["icu/other", "lindera", "other/model"])
def test_an_unknown_name_is_rejected(home, name):
    with pytest.raises(InvalidInputError, match="unknown base tokenizer"):
        make_model_tokenizer(name)


@pytest.mark.parametrize("config", ["{", "[]", '{"main": "none.txt"}', '{"users": ["none.txt"]}'])
def test_dictionaries_that_cannot_be_read_are_named(home, config):
    folder = home / "jieba" / "default"
    (folder / "dict.txt").write_text("word 3 n\n")
    (folder / "config.json").write_text(config)
    with pytest.raises(StorageError, match=r"config\.json|none\.txt"):
        make_model_tokenizer("jieba")

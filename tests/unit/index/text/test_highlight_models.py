"""Terms are marked in texts for tokenizers by rules and by dictionaries."""

import lindera
import pytest

from lancelet.index.text.analyzer import TextAnalyzer
from lancelet.index.text.highlight import HighlightTags, highlight
from lancelet.index.text.models import HOME_VARIABLE
from lancelet.index.text.options import TextOptions


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    (tmp_path / "jieba" / "default").mkdir(parents=True)
    words = "光明 1219 n\n前途 1263 n\n"
    (tmp_path / "jieba" / "default" / "dict.txt").write_text(words, encoding="utf-8")
    source, folder = tmp_path / "source", tmp_path / "lindera" / "mini"
    source.mkdir()
    folder.mkdir(parents=True)
    lines = "東京,0,0,100,*\n都,0,0,100,*\n"
    (source / "words.csv").write_text(lines, encoding="utf-8")
    (source / "matrix.def").write_text("1 1\n0 0 0\n")
    (source / "char.def").write_text("DEFAULT 0 1 0\nSPACE 0 1 0\n0x0020 SPACE\n")
    (source / "unk.def").write_text("DEFAULT,0,0,5000,*\nSPACE,0,0,5000,*\n")
    schema = lindera.Schema(["surface", "left_context_id", "right_context_id", "cost", "kind"])
    metadata = lindera.Metadata(name="mini", encoding="UTF-8", dictionary_schema=schema)
    lindera.build_dictionary(str(source), str(folder / "main"), metadata)
    config = f'segmenter:\n  mode: normal\n  dictionary: "{folder / "main"}"\n'
    lowercase = 'token_filters:\n  - kind: "lowercase"\n'
    (folder / "config.yml").write_text(config + lowercase)
    return tmp_path


@pytest.mark.parametrize(
    ("tokenizer", "text", "token", "expected"),
    [
        ("jieba", "é, 光明的前途", "前途", "é, 光明的<b>前途</b>"),
        ("lindera/mini", "é 東京都", "都", "é 東京<b>都</b>"),
        ("icu", "é 東京都 fox's", "東京", "é <b>東京</b>都 fox's"),
        ("icu/split", "é 東京都 fox's", "fox", "é 東京都 <b>fox</b>'s"),
    ],
)
def test_words_are_marked_where_they_stand(home, tokenizer, text, token, expected):
    options = {"base_tokenizer": tokenizer, "stem": False, "remove_stop_words": False}
    analyzer = TextAnalyzer(TextOptions.from_params(options))
    assert highlight(text, {token}, analyzer, HighlightTags()) == expected


def test_words_that_a_model_changes_are_tokens_but_not_marked(home):
    options = {"base_tokenizer": "lindera/mini", "stem": False, "lower_case": False}
    analyzer = TextAnalyzer(TextOptions.from_params(options))
    assert [token.text for token in analyzer.tokens("É 東京")] == ["e", "東京"]
    assert highlight("É 東京", {"e", "東京"}, analyzer, HighlightTags()) == "É <b>東京</b>"

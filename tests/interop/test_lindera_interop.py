"""One and the same model of lindera, of format 1, serves the reference and us."""

import random

import lance
import lindera
import pyarrow as pa
import pytest

import lancelet
from lancelet.index.text.models import HOME_VARIABLE
from lancelet.index.text.segments import UnreadableModelError

WORDS = (
    "東京 名詞 100|京都 名詞 100|東 名詞 300|都 名詞 200|に 助詞 50|住む 動詞 100|"
    "国際空港 名詞 90|空港 名詞 80"
)
CHARACTERS = """DEFAULT 0 1 0
SPACE 0 1 0
ALPHA 1 1 0
0x0020 SPACE
0x0041..0x005A ALPHA
0x0061..0x007A ALPHA
"""
UNKNOWN = "DEFAULT,0,0,5000,*\nSPACE,0,0,5000,*\nALPHA,0,0,4000,*\n"
OPTIONS = {"base_tokenizer": "lindera/mini", "stem": False, "remove_stop_words": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Compile a small dictionary, and return the home of the models."""
    home = tmp_path_factory.mktemp("models")
    source, folder = home / "source", home / "lindera" / "mini"
    source.mkdir()
    folder.mkdir(parents=True)
    rows = (line.split() for line in WORDS.split("|"))
    lines = "".join(f"{word},0,0,{cost},{kind}\n" for word, kind, cost in rows)
    (source / "words.csv").write_text(lines, encoding="utf-8")
    (source / "matrix.def").write_text("1 1\n0 0 0\n")
    (source / "char.def").write_text(CHARACTERS)
    (source / "unk.def").write_text(UNKNOWN)
    schema = lindera.Schema(["surface", "left_context_id", "right_context_id", "cost", "kind"])
    metadata = lindera.Metadata(name="mini", encoding="UTF-8", dictionary_schema=schema)
    lindera.build_dictionary(str(source), str(folder / "main"), metadata)
    return home


@pytest.fixture
def home(model, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(model))
    return model


def configured(home, *lines, mode="normal"):
    main = home / "lindera" / "mini" / "main"
    text = "\n".join([f'segmenter:\n  mode: {mode}\n  dictionary: "{main}"', *lines, ""])
    (home / "lindera" / "mini" / "config.yml").write_text(text)


def assert_cut_alike(text):
    mine, theirs = (
        [(token.text, token.position) for token in module.tokenize(text, **OPTIONS)]
        for module in (lancelet, lance)
    )
    assert mine == theirs, text
    return [word for word, _ in mine]


def test_texts_have_the_same_tokens(home):
    configured(home)
    assert assert_cut_alike("東京都に住む hello") == ["東京", "都", "に", "住む", "hello"]
    chance = random.Random(7)
    parts = [
        *(line.split()[0] for line in WORDS.split("|")),
        *"東京都国 、a1é한😀\n",
        "hello",
        "3.14",
    ]
    for _ in range(200):
        assert_cut_alike("".join(chance.choices(parts, k=chance.randint(0, 9))))


def test_filters_of_a_configuration_are_obeyed(home):
    configured(home, 'token_filters:\n  - kind: "lowercase"', mode='"normal"')
    assert assert_cut_alike("東京 ABC") == ["東京", "abc"]


def test_an_index_serves_both(home, tmp_path):
    configured(home)
    table = pa.table({"id": [0, 1, 2], "t": ["東京都に住む", "京都に住む", "国際空港"]})
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    lancelet.write_dataset(table, ours).create_scalar_index(
        "t", "INVERTED", base_tokenizer="lindera/mini"
    )
    lance.write_dataset(table, theirs).create_scalar_index(
        "t", "INVERTED", base_tokenizer="lindera/mini"
    )
    for query, expected in (("東京", [0]), ("京都", [1]), ("住む", [0, 1]), ("空港", [])):
        for module in (lance, lancelet):
            for path in (ours, theirs):
                found = module.dataset(path).to_table(full_text_query=query)["id"].to_pylist()
                assert sorted(found) == expected


@pytest.mark.parametrize("damage", ["missing", "format", "config"])
def test_an_error_for_an_unloadable_model_names_the_required_library(
    home, tmp_path, monkeypatch, damage
):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    (tmp_path / "lindera" / "mini").mkdir(parents=True)
    configured(tmp_path)
    if damage == "format":
        (tmp_path / "lindera" / "mini" / "main").mkdir()
        (tmp_path / "lindera" / "mini" / "main" / "metadata.json").write_text(
            '{"format_version": 2}'
        )
    if damage == "config":
        (tmp_path / "lindera" / "mini" / "config.yml").write_text("segmenter: [")
    for module in (lancelet, lance):
        with pytest.raises(ValueError, match="LinderaError"):
            module.tokenize("東京", **OPTIONS)
    with pytest.raises(UnreadableModelError, match="format 1") as caught:
        lancelet.tokenize("東京", **OPTIONS)
    assert caught.value.facts["release"] == lindera.version()
    assert "mini" in caught.value.facts["path"]

"""Texts of any script are segmented as in pylance.

The reference says what tokens a text has. It is asked about sentences, about the ends of all ranges
of characters beside characters of other classes, and about random texts of words of the lists,
beginnings of words, and characters of every class.
"""

import random

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.index.text.characters import class_ranges
from lancelet.index.text.icu_dictionary import read_dictionary
from lancelet.index.text.segments import icu_library, make_segment_tokenizer

NAMES = ["icu", "icu/split"]
PLAIN = {
    "stem": False, "remove_stop_words": False, "lower_case": False, "ascii_folding": False,
    "max_token_length": None,
}  # fmt: skip
LISTS = ["thaidict", "laodict", "burmesedict", "khmerdict", "cjdict"]
SENTENCES = [
    "Hello, こんにちは世界! hello_world alpha.beta it's 3.14,5 a@b.cd x:y 1:2 e.g. U.S.A.",
    "ภาษาไทยง่ายนิดเดียว ๑๒๓ วันนี้อากาศดีมาก ทุกสองสัปดาห์ กรุงเทพฯ และ ABC",
    "ພາສາລາວງ່າຍ ສະບາຍດີຊາວໂລກ ໑໒໓ ພວກເຮົາໄປຕະຫຼາດ",
    "ကျွန်တော်တို့ မြန်မာစာ ရေးတတ်သည်။ ၁၂၃ မြန်မာနိုင်ငံ",
    "ភាសាខ្មែរ ខ្ញុំស្រឡាញ់ប្រទេសកម្ពុជា ១២៣ ព្រះរាជាណាចក្រ",
    "中华人民共和国成立了。我们都有光明的前途\uff0c北京大学生活动中心 2024年5月",
    "東京都に住んでいます。日本語のテキストを検索するエンジン、カタカナ・ひらがな ﾊﾝｶｸ ー々〆",
    "대한민국 서울에서 hello한국어 中國語 한글과漢字 한 가각",
    "צה\"ל ש'ג שלום ״עולם״ العربية ١٢٣ مرحبا، हिन्दी में लिखा தமிழ் ქართული Ελλάδα",
    "👨\u200d👩\u200d👧\u200d👦 🇩🇪🇫🇷🇬 ❤\ufe0f\u200d🔥 5\ufe0f\u20e3 ©\ufe0f Ⓜ\ufe0fx \u2139\ufe0f",
    "e\u0301 a\u200db ア\u200d_ 漢\u0301字 漢\ufe00字 a\u00adb x\u2060y",
    "ไทยລາວមខကာ日本ไทยabcเมืองไทย1ภาษา_ตลาด แม้แต่ก็ ก๊ก๋ กฺ กํา",
    "",
]


def theirs(text, name):
    return [
        (token.text, token.position) for token in lance.tokenize(text, base_tokenizer=name, **PLAIN)
    ]


def ours(texts, name):
    words, positions, counts = make_segment_tokenizer(splits=name == "icu/split")(
        pa.array(texts, pa.large_string())
    )
    source = words.source.tobytes()
    places = zip(words.position.tolist(), words.size.tolist(), positions.tolist(), strict=True)
    found = ((source[at : at + size].decode(), position) for at, size, position in places)
    return [[next(found) for _ in range(count)] for count in counts.tolist()]


def assert_cut_alike(texts, name):
    for text, mine in zip(texts, ours(texts, name), strict=True):
        assert mine == theirs(text, name), ascii(text)


def words_of(name, chance, count):
    """Return some words of a list, and some of what words begin with."""
    tree = read_dictionary(icu_library().dictionary(name))
    found = []
    for _ in range(count):
        node, units = 0, b""
        while tree.num_children[node] and not (tree.is_word[node] and chance.random() < 0.4):
            node = int(tree.children[node]) + chance.randrange(int(tree.num_children[node]))
            units += int(tree.units[node]).to_bytes(2, "little")
        word = units.decode("utf-16-le")
        found.append(word if chance.random() < 0.8 else word[: chance.randint(1, len(word))])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_sentences_have_the_same_tokens(name):
    assert_cut_alike(SENTENCES, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_random_texts_have_the_same_tokens(name, seed):
    chance = random.Random(seed)
    words = [words_of(one, chance, 150) for one in LISTS]
    kinds = [ranges for _, ranges in class_ranges()]
    marks = [*"b1_ .,:'\"\n\r-\u0301\u200d\u00ad🇦アーש😀가"]

    def part(own):
        match chance.randrange(8):
            case 0 | 1 | 2:
                return chance.choice(own)
            case 3:
                return chance.choice(chance.choice(words))
            case 4 | 5:
                return chance.choice(marks)
            case 6:
                return chr(chance.randrange(32, 0xD800))
        first, last = chance.choice(chance.choice(kinds))
        return chr(chance.randint(first, last))

    texts = []
    for _ in range(250):
        own = chance.choice(words)
        texts.append("".join(part(own) for _ in range(chance.randint(1, 12))))
    assert_cut_alike(texts, name)


def test_the_ends_of_all_ranges_are_where_the_reference_has_them():
    ends = {
        end + by
        for _, ranges in class_ranges()
        for pair in ranges
        for end in pair
        for by in (-1, 0, 1)
    }
    known = [chr(code) for code in sorted(ends) if 0 < code < 0xD800 or 0xDFFF < code < 0x110000]
    contexts = [
        "a{}a", "1{}1", "{}{}", "ア{}ア", "ש{}ש", "中{}国", "a\u200d{}", "ก{}า", "_{}_", "ကာ{}က",
        "ភា{}ស",
    ]  # fmt: skip
    for start in range(0, len(known), 500):
        part = known[start : start + 500]
        text = "\n".join(context.replace("{}", one) for one in part for context in contexts)
        assert ours([text], "icu") == [theirs(text, "icu")]


def test_an_index_of_texts_in_any_script_serves_both(tmp_path):
    path = str(tmp_path / "texts")
    table = pa.table({"id": np.arange(len(SENTENCES)), "t": SENTENCES})
    written = lancelet.write_dataset(table, path)
    written.create_scalar_index("t", "INVERTED", base_tokenizer="icu")
    lance.write_dataset(table, path + "2").create_scalar_index(
        "t", "INVERTED", base_tokenizer="icu"
    )
    for query in ("ไทย", "東京", "北京大学", "ພາສາ", "hello", "3.14,5", "शब्द", "ខ្មែរ"):
        found = [
            sorted(module.dataset(where).to_table(full_text_query=query)["id"].to_pylist())
            for module in (lance, lancelet)
            for where in (path, path + "2")
        ]
        assert found[1:] == found[:-1], query

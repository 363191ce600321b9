"""Damaged files of text indices: rows are found with a warning, or the query fails.

Every file of an index is removed, truncated, and changed by bit flips, one at a time; queries of
every kind are run.
"""

import random
import shutil
import warnings

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import LanceletError
from lancelet.query import FullTextOperator, MatchQuery, PhraseQuery
from lancelet.scan.indexing.segments import IndexUnusableWarning

WORDS = ["red", "foxes", "dog", "cat", "running"] + [f"w{number}" for number in range(60)]
QUERIES = (
    MatchQuery("fox", "t"),
    MatchQuery("dog red w3", "t"),
    MatchQuery("red cat", "t", operator=FullTextOperator.AND),
    PhraseQuery("red fox", "t"),
    MatchQuery("run", "t", fuzziness=1),
)


def texts(count):
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 30))) for _ in range(count)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "table.lance"
    rows = pa.table({"id": range(700), "t": texts(700)})
    dataset = lancelet.write_dataset(rows, str(path))
    dataset.create_scalar_index("t", "INVERTED", with_position=True)
    return path, [answer(path, query) for query in QUERIES]


def answer(path, query):
    table = lancelet.dataset(str(path)).to_table(columns=["id"], full_text_query=query)
    return sorted(table["id"].to_pylist())


def index_files(path):
    return sorted(path.rglob("_indices/*/*.lance"))


def damaged(sound, tmp_path, damage, name):
    path = tmp_path / "table.lance"
    shutil.copytree(sound, path)
    (file,) = (each for each in index_files(path) if each.name == name)
    damage(file)
    return path


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def remove(file):
    file.unlink()


FILES = ("metadata.lance", "part_0_docs.lance", "part_0_invert.lance", "part_0_tokens.lance")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [truncate, remove])
def test_rows_are_read_instead_with_a_warning_that_names_the_file(sound, tmp_path, damage, name):
    path, expected = sound
    broken = damaged(path, tmp_path, damage, name)
    with pytest.warns(IndexUnusableWarning, match=name):
        found = [answer(broken, query) for query in QUERIES]
    assert found == expected


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_never_change_an_answer(sound, tmp_path, name):
    path, expected = sound
    chance = random.Random(name)
    size = next(each for each in index_files(path) if each.name == name).stat().st_size
    for number in range(25):
        place, bit = chance.randrange(size), 1 << chance.randrange(8)

        def flip(file, place=place, bit=bit):
            data = bytearray(file.read_bytes())
            data[place] ^= bit
            file.write_bytes(data)

        broken = damaged(path, tmp_path / str(number), flip, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IndexUnusableWarning)
            for query, rows in zip(QUERIES, expected, strict=True):
                try:
                    found = answer(broken, query)
                except LanceletError as error:
                    pytest.fail(f"byte {place}, bit {bit}: {error}")
                assert found == rows, (place, bit)

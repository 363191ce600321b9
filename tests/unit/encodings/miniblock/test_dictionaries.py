"""Dictionaries of many pages are decoded together, unless they are large; each has its items."""

import hashlib
import random

import pyarrow as pa
import pytest

import lancelet
from lancelet.encodings.codecs import registry

FRAGMENTS, ROWS = 20, 4000


def _digest(page: int, item: int) -> str:
    return hashlib.sha512(f"{page} {item}".encode()).hexdigest()


CASES = {
    "text": (pa.string(), 11, lambda page, item: f"word {page} {item}" + "." * (page % 3)),
    "much text": (pa.string(), 400, _digest),
    "numbers": (pa.int64(), 11, lambda page, item: int(_digest(page, item)[:15], 16)),
    "lists": (
        pa.list_(pa.string()),
        11,
        lambda page, item: [f"word {page} {item}", f"other {item}"][: item % 3],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pages_with_items_of_their_own_are_read_together(tmp_path, monkeypatch, name):
    data_type, num_items, item_of = CASES[name]
    items = [[item_of(page, item) for item in range(num_items)] for page in range(FRAGMENTS)]
    chance = random.Random(7)
    values = pa.array(
        [chance.choice(items[row // ROWS]) for row in range(FRAGMENTS * ROWS)], data_type
    )
    rows = pa.table({"v": values})
    table = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=ROWS)
    decoded = []
    decode_blocks = registry.decode_blocks

    def counted(encoding, slices, counts):
        decoded.append(len(counts))
        return decode_blocks(encoding, slices, counts)

    monkeypatch.setattr(registry, "decode_blocks", counted)
    assert table.to_table()["v"].combine_chunks().equals(values)
    assert decoded.count(FRAGMENTS) == (name != "much text")
    assert decoded.count(1) == (FRAGMENTS if name == "much text" else 0)
    some = [17, ROWS + 3, len(rows) - 1, 5]
    assert table.take(some)["v"].to_pylist() == values.take(some).to_pylist()

"""An FM index against texts that are searched one by one, and files of it that are damaged."""

import random

import numpy as np
import pyarrow as pa
import pytest

from lancelet.errors import CorruptDataError
from lancelet.index.base import IndexedRows, Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import Contains, IsNull
from lancelet.index.scalar.fm import kind, layout
from lancelet.index.scalar.fm.kind import Fm
from lancelet.io.memory import MemoryStore
from lancelet.rowids.address import NO_ADDRESS

ROWS = 700
PARTS = ("a", "ba", "ab ab", "é", "bé ", "zz", "\x7f", "a\0", "\0", " ")


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(5)
    return [
        None if number % 13 == 5 else "".join(rng.choices("aab é\0", k=rng.randrange(12)))
        for number in range(ROWS)
    ]


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(kind, "_ROWS_MAX", 150)
    monkeypatch.setattr(kind, "_BYTES_MAX", 1000)


def folder():
    return SegmentFolder(MemoryStore.unnamed(), "_indices/a")


def rows_of(texts, first=0, size=60, data_type=None):
    numbers = np.arange(first, first + len(texts), dtype=np.uint64)
    parts = [
        (pa.array(texts[at : at + size], data_type or pa.string()), numbers[at : at + size])
        for at in range(0, len(texts), size)
    ]
    return IndexedRows(data_type or pa.string(), parts)


def trained(texts, **how):
    place = folder()
    Fm().train(rows_of(texts, **how), place, Parameters())
    return Fm().open(place, b"")


def check(segment, texts, first=0):
    """Every row with a substring is found, and no other unless the result is inexact."""
    for part in PARTS:
        query = Contains(part)
        rows = {first + at for at, text in enumerate(texts) if text is not None and part in text}
        assert segment.estimate(query) >= len(rows)
        found = segment.search(query)
        listed = set(found.rows.listed().tolist())
        if found.is_exact:
            assert listed == rows, part
        else:
            assert listed >= rows, part
            assert " " in part or "\0" in part
    assert segment.search(Contains("ab")).is_exact


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.binary()])
def test_every_part_of_a_text_is_found(texts, data_type):
    own = texts
    if data_type == pa.binary():
        own = [None if text is None else text.encode() for text in texts]
    segment = trained(own, data_type=data_type)
    assert segment.statistics()["num_partitions"] > 4
    assert segment.statistics()["total_docs"] == sum(text is not None for text in texts)
    check(segment, texts)


def test_unanswerable_queries_are_not_answered(texts):
    segment = trained(texts)
    assert segment.estimate(Contains("")) is None
    assert segment.estimate(IsNull()) is None
    assert segment.nulls() is None


def test_texts_without_reserved_bytes_are_found_exactly_by_blanks():
    segment = trained(["a b", "ab", "b a b"])
    found = segment.search(Contains("a b"))
    assert (found.rows.listed().tolist(), found.is_exact) == ([0, 2], True)


def test_an_index_of_no_texts_finds_nothing():
    for texts in ([], [None, None]):
        segment = trained(texts)
        assert segment.estimate(Contains("a")) == 0
        assert not segment.search(Contains("a")).rows
    assert trained(["", ""]).estimate(Contains("a")) == 0


def test_a_merge_has_the_rows_of_all_under_their_new_numbers(texts):
    half = ROWS // 2
    segments = [trained(texts[:half]), trained(texts[half:], first=half)]

    def move(numbers):
        return np.where(numbers % 3 == 0, NO_ADDRESS, numbers + np.uint64(10)).astype(np.uint64)

    place = folder()
    Fm().merge(segments, [move, lambda numbers: numbers], rows_of(["new ab"], 5000), place)
    merged = Fm().open(place, b"")
    expected = {at + 10 for at in range(half) if at % 3 and "ab" in (texts[at] or "")}
    expected |= {at for at in range(half, ROWS) if "ab" in (texts[at] or "")} | {5000}
    assert set(merged.search(Contains("ab")).rows.listed().tolist()) == expected
    assert not merged.search(Contains("a b")).is_exact


def test_a_full_partition_whose_rows_stay_is_not_sorted_again(texts, monkeypatch):
    segment = trained(texts)
    monkeypatch.setattr(layout, "order_suffixes", None)
    monkeypatch.setattr(kind, "_SMALL_FRACTION", 1 << 20)
    place = folder()
    Fm().remap(segment, lambda numbers: numbers + np.uint64(7), place)
    check(Fm().open(place, b""), texts, first=7)


def test_a_text_that_is_longer_than_a_partition_is_in_one():
    texts = ["x", "ab" * 900, "y" * 999, "z"]
    segment = trained(texts)
    assert [each.numbers.tolist() for each in segment.partitions()] == [[0, 1], [2], [3]]
    assert segment.search(Contains("ba" * 899)).rows.listed().tolist() == [1]


def test_codes_have_32_bits_at_most():
    # Frequencies that grow as Fibonacci's numbers do make the deepest tree.
    counts = [1, 1]
    while len(counts) < 45:
        counts.append(counts[-1] + counts[-2])
    children = layout._huffman_children(np.array(counts + [0] * (256 - len(counts))))
    assert sorted(-1 - child for child in children.tolist() if child < 0) == list(range(45))
    assert max(map(len, layout._paths(children).values())) <= 32


def stored(texts):
    place = folder()
    Fm().train(rows_of(texts), place, Parameters())
    return place


def rewritten(place, changes):
    """Return a folder with changed metadata in its first file."""
    file = place.open(layout.part_name(0))
    table = pa.Table.from_arrays(file.read(file.schema.names), schema=file.schema)
    metadata = {**file.metadata, **{key: value for key, value in changes.items() if value}}
    for key in changes.keys() - {key for key, value in changes.items() if value}:
        del metadata[key]
    new = folder()
    new.write(layout.part_name(0), table.replace_schema_metadata(None), metadata)
    return new


CLAIMS = {
    "bwt_len": ["0", "-1", "9" * 18, "x", None],
    "total_wavelet_rows": ["999999999999", "0", "1", None],
    "num_sa_blocks": ["999999999999", "0"],
    "sa_samples_len": ["0"],
    "sa_sample_rate": ["0", "1", "9" * 30],
    "c_table": ["", "00", "ff" * 2056, None],
    "tree_topology": ["ffffffff", "00000000", "01000000" + "00ffffffff" * 2, "zz", None],
    "row_ids": ["00" * 8, "", None],
    "doc_start_positions": ["ff" * 8, "01" + "00" * 7, None],
}


@pytest.mark.parametrize(("key", "value"), [(key, each) for key in CLAIMS for each in CLAIMS[key]])
def test_file_metadata_is_checked(key, value):
    place = rewritten(stored(["ab", "abc", "xy"]), {key: value})
    with pytest.raises(CorruptDataError):
        Fm().open(place, b"").search(Contains("ab"))


def test_a_partition_that_is_missing_is_noticed(texts):
    place = stored(texts)
    names = [file.path for file in place.written]
    place.store.delete(f"{place.path}/{names[1]}")
    with pytest.raises(CorruptDataError, match="missing"):
        Fm().open(place, b"")
    place = stored(texts)
    place.store.delete(f"{place.path}/{names[-1]}")
    listed = SegmentFolder(place.store, place.path, listed=tuple(place.written))
    with pytest.raises(FileNotFoundError):
        Fm().open(listed, b"").search(Contains("ab"))

"""Tiny fragments read together: scans, filters and takes have the results of single reads."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError
from lancelet.scan.nodes import pack as packs
from lancelet.scan.nodes.source import sources as sources_of

SEEN = 7
"""Rows of a fragment."""


def rows(count):
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "text": [None if n % 5 == 0 else f"row {n}" for n in range(count)],
            "list": [[n] * (n % 3) for n in range(count)],
        }
    )


@pytest.fixture
def made(tmp_path):
    """Return a function that creates a table in a store that reads several files at once."""

    def make(count=100, **options):
        return lancelet.write_dataset(
            rows(count), tmp_path / "packs", max_rows_per_file=SEEN, **options
        )

    return make


@pytest.fixture
def apart(monkeypatch):
    """Return a function that lets later reads visit every fragment separately."""
    return lambda: monkeypatch.setattr(packs, "is_tiny", lambda _: False)


def everything(dataset):
    names = ["id", "text", "list", "_rowid", "_rowaddr", "_rowoffset"]
    places = [3, 99, 0, 40, 40, 8, 71, 22, 30, 50, 60, 15]
    live = dataset.count_rows()
    return {
        "scan": dataset.to_table(columns=names),
        "batches": [len(batch) for batch in dataset.to_batches(batch_size=10)],
        "window": dataset.to_table(columns=names, offset=10, limit=33),
        "filter": dataset.to_table(columns=names, filter="id % 3 = 1 AND text IS NOT NULL"),
        "late": dataset.to_table(columns=["list"], filter="id % 20 = 1"),
        "none": dataset.to_table(filter="id < 0"),
        "no columns": dataset.to_table(columns=[], filter="id % 2 = 0", with_row_id=True),
        "count": dataset.count_rows(filter="id % 4 = 0"),
        "take": dataset.take([place % live for place in places]),
        "some": dataset.to_table(fragments=dataset.get_fragments()[2:5]),
    }


def assert_same(found, expected):
    for name, value in expected.items():
        assert found[name] == value, name


def test_files_of_a_store_that_reads_them_one_by_one_are_not_packed():
    dataset = lancelet.write_dataset(rows(100), "memory://", max_rows_per_file=SEEN)
    sources = sources_of(dataset.snapshot, None)
    assert not any(isinstance(each, packs.Pack) for each in packs.pack_tiny(sources))


def test_tiny_fragments_are_packed(made):
    sources = sources_of(made().snapshot, None)
    (found,) = packs.pack_tiny(sources)
    assert len(found.members) == 15


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_packs_read_as_their_fragments_do(made, version, apart):
    dataset = made(data_storage_version=version)
    found = everything(dataset)
    apart()
    assert_same(found, everything(lancelet.dataset(dataset.uri)))


@pytest.mark.parametrize("with_ids", [False, True])
def test_deleted_rows_are_left_out(made, with_ids, apart):
    dataset = made(enable_stable_row_ids=with_ids)
    dataset.delete("id % 9 = 2 OR (id >= 21 AND id < 28)")
    dataset.delete("id = 98 OR id = 99")
    found = everything(dataset)
    apart()
    assert_same(found, everything(lancelet.dataset(dataset.uri)))


def test_fragments_whose_columns_are_in_several_files_are_packed(made, apart):
    dataset = made()
    dataset.add_columns({"twice": "id * 2"})
    dataset.insert(rows(10).append_column("twice", pa.array(range(10), pa.int64())))
    found = everything(dataset), dataset.to_table()
    apart()
    dataset = lancelet.dataset(dataset.uri)
    assert_same(found[0], everything(dataset))
    assert found[1] == dataset.to_table()


def test_columns_that_some_fragments_lack_are_null(made, apart):
    dataset = made(20)
    dataset.add_columns(pa.field("later", pa.int32()))
    dataset.insert(rows(20).append_column("later", pa.array(range(20), pa.int32())))
    found = dataset.to_table()
    assert found["later"].null_count == 20
    apart()
    assert found == lancelet.dataset(dataset.uri).to_table()


def test_changes_meet_rows_of_packs(made):
    dataset = made()
    dataset.update({"text": "'changed'"}, where="id % 10 = 3")
    dataset.merge_insert("id").when_matched_update_all().execute(rows(12))
    found = dataset.to_table(columns=["id", "text"]).sort_by("id")
    expected = rows(100).select(["id", "text"]).to_pylist()
    for row in expected:
        if row["id"] % 10 == 3 and row["id"] >= 12:
            row["text"] = "changed"
    assert found.to_pylist() == expected


def test_damage_names_its_file(tmp_path):
    dataset = lancelet.write_dataset(rows(100), tmp_path / "t", max_rows_per_file=SEEN)
    path = dataset.get_fragments()[5].data_files()[0].path
    file = tmp_path / "t" / "data" / path
    data = bytearray(file.read_bytes())
    data[1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptDataError) as raised:
        lancelet.dataset(tmp_path / "t").to_table()
    assert path in str(raised.value)


def test_packs_are_bounded(monkeypatch):
    class Source(packs.FragmentSource):
        def __init__(self, count):
            self.num_rows = count

    sources = [Source(count) for count in [5] * 200 + [140_000] + [80_000] * 3]
    monkeypatch.setattr(packs, "is_tiny", lambda _: True)
    found = list(packs.pack_tiny(sources))
    sizes = [len(each.members) if isinstance(each, packs.Pack) else 1 for each in found]
    assert sizes == [64, 64, 64, 8, 1, 1, 1, 1]
    assert np.sum([each.num_rows for each in found]) == 5 * 200 + 140_000 + 3 * 80_000

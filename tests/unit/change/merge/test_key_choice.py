"""Upserts and deletes use an index on the key only if that reads less.

Reads are counted with and without the index, each time with empty caches.
"""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.merge import join
from lancelet.io.cache import CACHE

NUM_ROWS = 300_000
FEW, MANY = 5, 400


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The same rows twice, once with an index on their key."""
    folder = tmp_path_factory.mktemp("keys")
    ids = np.random.default_rng(5).permutation(10 * NUM_ROWS)[:NUM_ROWS]
    rows = pa.table({"id": ids, "city": ids % 100})
    for name in ("indexed", "plain"):
        lancelet.write_dataset(rows, str(folder / name), max_rows_per_file=100_000)
    lancelet.dataset(str(folder / "indexed")).create_scalar_index("id", "BTREE")
    return folder, ids


def read_by(path, work):
    """Return the requests and bytes of `work` with an empty cache, and its result.

    The cache is shared by the process and depends on previous tests.
    """
    CACHE.clear()
    dataset = lancelet.dataset(str(path))
    dataset.io_stats_incremental()
    result = work(dataset)
    stats = dataset.io_stats_incremental()
    return stats.read_iops, stats.read_bytes, result


def upsert_of(ids, **options):
    rows = pa.table({"id": ids, "city": np.zeros(len(ids), np.int64)})

    def work(dataset):
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        if options:
            merge = merge.use_index(**options)
        return merge.execute(rows, dry_run=True)

    return work


def test_an_upsert_of_few_keys_uses_the_index_and_reads_less(tables):
    folder, ids = tables
    asked = read_by(folder / "indexed", upsert_of(ids[:FEW]))
    scanned = read_by(folder / "indexed", upsert_of(ids[:FEW], use_index=False))
    assert asked[1] < scanned[1] / 2
    assert (asked[2].rows, asked[2].conflicts) == (scanned[2].rows, scanned[2].conflicts)


def test_an_upsert_of_many_keys_does_not_use_the_index(tables):
    folder, ids = tables
    found = read_by(folder / "indexed", upsert_of(ids[:MANY]))
    scanned = read_by(folder / "indexed", upsert_of(ids[:MANY], use_index=False))
    plain = read_by(folder / "plain", upsert_of(ids[:MANY]))
    assert found[:2] == scanned[:2]
    # The list of indices, and a manifest that is read once more while it is new.
    assert found[0] <= plain[0] + 2
    assert found[2].rows == plain[2].rows


def test_the_index_is_unused_where_it_would_read_more(tables, monkeypatch):
    folder, ids = tables
    found = read_by(folder / "indexed", upsert_of(ids[:MANY]))
    monkeypatch.setattr(join, "_ROWS_PER_KEY", 1)
    forced = read_by(folder / "indexed", upsert_of(ids[:MANY]))
    assert forced[1] > found[1]
    assert forced[2].rows == found[2].rows


@pytest.mark.parametrize("keys", [1, FEW])
def test_a_delete_of_few_keys_reads_less_with_an_index(tables, keys):
    folder, ids = tables
    text = f"id IN ({', '.join(map(str, ids[:keys]))})"

    def delete(dataset):
        return dataset.delete(text, dry_run=True)

    asked, scanned = (read_by(folder / name, delete) for name in ("indexed", "plain"))
    assert asked[2].rows == scanned[2].rows == keys
    assert asked[1] < scanned[1] / 2


def test_a_delete_of_half_the_table_reads_its_rows_and_no_page_of_the_index(tables):
    folder, _ = tables

    def delete(dataset):
        return dataset.delete(f"id < {5 * NUM_ROWS}", dry_run=True)

    found, plain = (read_by(folder / name, delete) for name in ("indexed", "plain"))
    assert found[2].rows == plain[2].rows > NUM_ROWS // 3
    # The estimate of the index reads its summary, not its pages.
    assert found[1] < 1.1 * plain[1]

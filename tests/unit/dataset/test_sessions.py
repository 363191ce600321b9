"""Sessions: cached data, its limits, and its statistics."""

import gc
import shutil
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet import Session
from lancelet.errors import InvalidInputError
from lancelet.fragment import LanceFragment, write_fragments

MEGABYTE = 1_000_000
DIMENSION = 32


def vectors(count, seed=0):
    values = np.random.default_rng(seed).standard_normal(count * DIMENSION).astype(np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A table with an index of every kind that uses much memory."""
    count = 20_000
    words = np.random.default_rng(1).integers(0, 3000, (count, 8))
    rows = pa.table(
        {
            "id": np.random.default_rng(2).permutation(count),
            "label": [f"label {row % 50}" for row in range(count)],
            "text": [" ".join(f"w{word}" for word in row) for row in words.tolist()],
            "v": vectors(count),
        }
    )
    path = tmp_path_factory.mktemp("sessions") / "table"
    dataset = lancelet.write_dataset(rows, path, max_rows_per_file=5000)
    dataset.create_index("v", "IVF_HNSW_SQ", num_partitions=2)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("label", "BITMAP")
    dataset.create_scalar_index("text", "INVERTED", with_position=True)
    return path


def search(dataset, seed=0, k=10):
    query = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return dataset.to_table(columns=["id"], nearest={"column": "v", "q": query, "k": k})


@pytest.mark.parametrize(
    "backend", ["moka://?capacity=7", {"kind": "MOKA", "options": {"capacity": "7"}}]
)
def test_a_backend_is_a_size(backend, indexed):
    session = Session(index_cache_backend=backend, metadata_cache_backend=backend)
    assert session.stats.budget_bytes == 14
    search(lancelet.dataset(indexed, session=session))
    assert session.size_bytes() == session.index_cache_size_bytes() == 0


def test_sizes_limit_the_index_cache_and_the_metadata_cache(indexed):
    session = Session(300_000, 200_000)
    expected = search(lancelet.dataset(indexed))
    for seed in range(3):
        dataset = lancelet.dataset(indexed, session=session)
        found = search(dataset, seed)
        assert seed or found == expected
        dataset.to_table(filter="id < 100")
        dataset.to_table(full_text_query="w17")
        assert session.index_cache_size_bytes() <= 300_000
        assert session.size_bytes() - session.index_cache_size_bytes() <= 200_000
    assert session.stats.evictions


def test_four_handles_on_one_index_share_it(indexed):
    session = Session(50 * MEGABYTE, 50 * MEGABYTE)
    first = lancelet.dataset(indexed, session=session)
    expected = search(first)
    after_one = session.index_cache_size_bytes()
    assert after_one > 20_000 * DIMENSION  # a byte for each number of each vector
    others = [lancelet.dataset(indexed, session=session) for _ in range(3)]
    for other in others:
        before = other.io_stats_snapshot().read_bytes
        assert search(other) == expected
        # The version and the rows that were found, but nothing of the index.
        assert other.io_stats_snapshot().read_bytes - before < 50_000
    assert session.index_cache_size_bytes() < 1.01 * after_one


def test_handles_without_a_session_share_the_cache_of_the_process(indexed):
    first, second = lancelet.dataset(indexed), lancelet.dataset(indexed)
    search(first)
    held = second.session().index_cache_size_bytes()
    search(second)
    assert second.session().index_cache_size_bytes() < held + 100_000


def test_resources_of_handles_are_released_with_the_last_handle(indexed):
    session = Session(50 * MEGABYTE, 50 * MEGABYTE)
    handles = [lancelet.dataset(indexed, session=session) for _ in range(2)]
    for handle in handles:
        search(handle)
    held = session.size_bytes()
    handles.pop()
    del handle
    gc.collect()
    assert session.size_bytes() > held / 2
    handles.clear()
    gc.collect()
    assert session.index_cache_size_bytes() == 0
    assert session.size_bytes() < held / 4  # metadata of files, for later opens


def test_a_table_that_was_made_again_is_not_taken_for_the_old_one(tmp_path):
    session = Session(MEGABYTE, MEGABYTE)
    made = []
    for start in (0, 1000):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        rows = pa.table({"id": range(start, start + 100)})
        dataset = lancelet.write_dataset(rows, tmp_path / "t", session=session)
        dataset.delete(f"id = {start}")
        dataset.create_scalar_index("id", "BTREE")
        made.append(dataset)
        opened = lancelet.dataset(tmp_path / "t", session=session)
        assert opened.to_table() == rows.slice(1)
        assert opened.count_rows(f"id = {start + 1}") == 1
        assert opened.count_rows(f"id = {start}") == 0


def mixed_work(path, session, seconds):
    """Scan, take and search through handles that come and go; yield after each step."""
    random = np.random.default_rng(3)
    handles = []
    end = time.monotonic() + seconds
    rounds = 0
    while rounds < 12 or time.monotonic() < end:
        rounds += 1
        if len(handles) >= 4:
            handles.pop(0)
        handles.append(lancelet.dataset(path, session=session))
        dataset = handles[int(random.integers(len(handles)))]
        low = int(random.integers(19_000))
        search(dataset, seed=rounds, k=20)
        yield
        assert dataset.to_table(filter=f"id >= {low} AND id < {low + 500}").num_rows == 500
        yield
        dataset.take(random.integers(0, 20_000, 50).tolist())
        yield
        dataset.to_table(full_text_query=f"w{int(random.integers(3000))} w1", limit=10)
        yield
        dataset.count_rows(f"label = 'label {low % 50}'")
        dataset.to_table(columns={"id": "id", "other": f"id + {rounds}"})
        yield


@pytest.mark.parametrize("seconds", [0, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("megabytes", [64, 3])
def test_a_session_never_holds_more_than_it_may(indexed, megabytes, seconds):
    budget = megabytes * MEGABYTE
    session = Session(budget // 2, budget // 2)
    most = 0
    for _ in mixed_work(indexed, session, seconds):
        most = max(most, session.size_bytes())
    assert budget / 20 < most <= budget


def test_reported_memory_is_close_to_measured_memory(indexed):
    """The sizes of cached arrays agree with Python and NumPy."""
    session = Session(50 * MEGABYTE, 50 * MEGABYTE)
    dataset = lancelet.dataset(indexed, session=session)
    gc.collect()
    before = pa.total_allocated_bytes()  # by tests that ran earlier
    tracemalloc.start()
    try:
        search(dataset)
        dataset.to_table(filter="id < 100")
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
        held = session.size_bytes()
        assert held < 3 * traced
        assert traced < 3 * held
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("moka", "missing ':'"),
        ("disk://?capacity=1", "unknown cache backend kind"),
        ("moka://", "capacity is required"),
        ("moka://?capacity=", "capacity must not be empty"),
        ("moka://?capacity=x", "cannot parse capacity"),
        ("moka://?capacity=1&x=2", "unknown option"),
        ({"kind": "moka", "capacity": "1"}, "unknown dict key"),
        ({"options": {}}, "must contain a 'kind' key"),
        ({"kind": "moka", "options": {"capacity": 1}}, "values must be strings"),
        (5, "expected str"),
    ],
)
def test_other_backends_are_rejected(backend, message):
    with pytest.raises(InvalidInputError, match=message):
        Session(index_cache_backend=backend)


def test_a_size_is_stored_once():
    with pytest.raises(InvalidInputError, match="mutually exclusive"):
        Session(1024, index_cache_backend="moka://?capacity=1")


def test_a_session_is_shared_by_being_passed_on(tmp_path):
    rows = pa.table({"a": range(1000)})
    lancelet.write_dataset(rows, tmp_path, max_rows_per_file=250)
    dataset = lancelet.dataset(tmp_path)
    before = dataset.session().size_bytes()
    dataset.to_table()
    assert dataset.session().size_bytes() > before
    shared = lancelet.dataset(tmp_path, session=dataset.session())
    assert shared.session().is_same_as(dataset.session())
    assert not shared.session().is_same_as(lancelet.dataset(tmp_path).session())
    assert repr(shared.session()).startswith(f"Session(size_bytes={shared.session().size_bytes()}")


def test_sizes_of_a_dataset_are_those_of_its_session(tmp_path):
    lancelet.write_dataset(pa.table({"a": range(10)}), tmp_path)
    dataset = lancelet.dataset(tmp_path, index_cache_size_bytes=7, metadata_cache_size_bytes=9)
    assert dataset.session().stats.budget_bytes == 16
    dataset.to_table()
    assert dataset.session().size_bytes() == 0


def test_fragments_are_written_with_a_session(tmp_path):
    rows = pa.table({"a": [1]})
    dataset = lancelet.write_dataset(rows, tmp_path)
    session = dataset.session()
    write_fragments(rows, str(tmp_path), session=session)
    LanceFragment.create(str(tmp_path), rows, session=session)
    assert len(write_fragments(rows, dataset, session=session)) == 1
    with pytest.raises(ValueError, match="differs from the session of the destination"):
        write_fragments(rows, dataset, session=Session())

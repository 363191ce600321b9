import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from lancelet.buffers import ByteRanges
from lancelet.errors import ObjectNotFoundError
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from lancelet.io.metered import PROCESS_METER, IoCounts, IoMeter, metered


def test_reads_and_writes_are_counted_with_their_bytes():
    meter = IoMeter()
    store = metered(MemoryStore("metered-1"), meter)
    store.put("a", b"0123456789")
    with store.open_writer("b") as writer:
        writer.write(b"abc", b"de")
    assert meter.take() == IoCounts(write_iops=3, written_bytes=15)
    with store.open_reader("a") as reader:
        reader.read_ranges(ByteRanges.of((0, 4), (8, 1)))
        reader.read_tail(3)
    assert store.read("b") == b"abcde"
    list(store.list())
    assert meter.counts == IoCounts(read_iops=5, read_bytes=13)


def test_failed_requests_are_not_counted():
    meter = IoMeter()
    with pytest.raises(ObjectNotFoundError):
        metered(MemoryStore("metered-2"), meter).read("missing")
    assert meter.counts == IoCounts()


def test_scopes_add_to_those_around():
    process = IoMeter()
    handle = process.scope()
    first, second = handle.scope(), handle.scope()
    store = MemoryStore("metered-3")
    store.put("a", b"12345")
    metered(store, first).read("a")
    metered(store, second).read("a")
    metered(store, handle).read("a")
    assert [meter.counts.read_bytes for meter in (first, second, handle, process)] == [5, 5, 15, 15]
    assert handle.take().read_iops == 3
    assert handle.counts == IoCounts()
    assert process.counts.read_iops == 3


def test_a_metered_store_replaces_its_meter():
    outer = IoMeter()
    store = metered(metered(MemoryStore("metered-4"), outer), inner := outer.scope())
    store.put("a", b"123")
    assert inner.counts == outer.counts == IoCounts(write_iops=1, written_bytes=3)


def test_many_threads_lose_no_count():
    meter = IoMeter().scope()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(400):
            pool.submit(meter.add, read_iops=1, read_bytes=2)
    assert meter.counts == IoCounts(read_iops=400, read_bytes=800)


def test_meter_arrives_at_zero_in_another_process():
    meter = IoMeter()
    meter.add(read_iops=1)
    assert pickle.loads(pickle.dumps(meter)).counts == IoCounts()


def test_process_has_a_meter():
    before = PROCESS_METER.counts
    metered(MemoryStore("metered-5"), PROCESS_METER.scope()).put("a", b"12")
    assert PROCESS_METER.counts.written_bytes == before.written_bytes + 2


def test_objects_that_are_read_together_are_counted_one_by_one(tmp_path):
    meter = IoMeter()
    store = metered(LocalStore(tmp_path, sync=False), meter)
    store.put("a", b"12345")
    store.put("b", b"123")
    meter.take()
    assert store.read_together(["a", "b"], [5, 3]).tobytes() == b"12345123"
    assert meter.take() == IoCounts(read_iops=2, read_bytes=8)


def test_unsupported_batched_reads_are_not_counted():
    meter = IoMeter()
    assert metered(MemoryStore("metered-together"), meter).read_together(["a"], [5]) is None
    assert meter.counts == IoCounts()

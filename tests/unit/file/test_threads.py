"""State shared by readers is safe for concurrent threads."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lancelet.file.open as opening
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.file.zone_file import open_zones
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.local import LocalStore
from lancelet.io.mapped import forget_mapped_pages

THREADS = 4


@pytest.fixture
def store(tmp_path):
    store = LocalStore(str(tmp_path))
    rows = pa.table({"x": range(1000)})
    options = WriterOptions(FileVersion.V2_1, zone_rows=100)
    writer = create_data_file(store, "a.lance", Schema.from_arrow(rows.schema), options)
    writer.write(rows)
    writer.finish()
    return store


@pytest.fixture
def eager_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_maps_are_forgotten_while_others_open_and_close_files(store, eager_switches):
    done = threading.Event()

    def open_and_close():
        while not done.is_set():
            readers = [store.open_reader("a.lance") for _ in range(20)]
            for reader in readers:
                reader.close()

    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(open_and_close) for _ in range(THREADS)]
        try:
            for _ in range(200):
                forget_mapped_pages()
        finally:
            done.set()
        for each in working:
            each.result()


def test_zones_are_opened_once_and_never_taken_for_absent(store, monkeypatch):
    opened = []

    def slowly(reader):
        opened.append(reader)
        time.sleep(0.01)
        return open_zones(reader)

    monkeypatch.setattr(opening, "open_zones", slowly)
    reader = open_data_file(store, "a.lance")
    (field,) = reader.schema.fields
    together = threading.Barrier(THREADS)

    def ask(_):
        together.wait()
        return reader.zone_statistics(field)

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(ask, range(THREADS)))
    assert len(opened) == 1
    assert all(each is not None for each in found)

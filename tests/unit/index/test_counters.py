"""Threads that read parts of one index at the same time are all counted."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from lancelet.index.folder import IndexLoads
from lancelet.index.scalar.btree.pages import Pages


class SlowPages(Pages):
    """Lets other threads go between reading and writing the count."""

    @property
    def _num_read(self):
        found = vars(self)["read"]
        time.sleep(0.001)
        return found

    @_num_read.setter
    def _num_read(self, count):
        vars(self)["read"] = count

    _read_rows = staticmethod(lambda *_: None)
    rows_of = staticmethod(lambda *_: (0, 1))


class SlowLoads(IndexLoads):
    """Lets other threads go between reading and writing a count."""

    @property
    def parts(self):
        found = vars(self)["read"]
        time.sleep(0.001)
        return found

    @parts.setter
    def parts(self, count):
        vars(self)["read"] = count


def test_no_load_is_forgotten():
    loads = SlowLoads()
    together = threading.Barrier(8)

    def read(_):
        together.wait()
        loads.count(parts=2, cache_hits=1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert (loads.parts, loads.cache_hits) == (16, 8)


def test_no_page_is_forgotten():
    pages = SlowPages(None, ("values", "ids"), 1, 0, 0, 8, None, None, None)
    together = threading.Barrier(8)

    def read(number):
        together.wait()
        pages._read_page(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert pages._num_read == 8

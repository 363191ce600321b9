"""Files of one change are flushed together, also if several threads wrote them."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from lancelet.io.durable import BackgroundFlushes


def test_files_of_several_threads_are_flushed_and_closed_once(tmp_path):
    handles = [os.open(tmp_path / str(number), os.O_CREAT | os.O_WRONLY) for number in range(400)]
    flushes = BackgroundFlushes()
    # A handle closed twice makes a flush fail, or closes another file.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            folder = str(tmp_path)
            list(pool.map(lambda each: flushes.start("x", each, folder, is_small=True), handles))
        flushes.wait()
    finally:
        sys.setswitchinterval(before)

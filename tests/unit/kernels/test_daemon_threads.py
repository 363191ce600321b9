"""A process ends in peace while daemon threads are within kernels."""

import subprocess
import sys

_PROGRAM = """
import threading, time
import numpy as np
from lancelet.kernels import crc32c

data = np.zeros(1 << 14, np.uint8)
started = threading.Barrier(5)

class Ends:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)  # others come back to an interpreter that ends

def sum_up():
    started.wait()
    while True:
        crc32c(data)

ends = Ends()
for _ in range(4):
    threading.Thread(target=sum_up, daemon=True).start()
started.wait()
time.sleep(0.05)
"""


def test_the_interpreter_ends_while_threads_are_in_kernels():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

"""A process exits normally while daemon threads run kernels."""

import subprocess
import sys

import pytest

_PROGRAM = """
import os, threading, time
import numpy as np
from lancelet.kernels import crc32c

data = np.zeros(1 << 24, np.uint8)

def running(threads, open=os.open, read=os.read, close=os.close):
    count = 0
    for each in threads:
        try:
            handle = open(f"/proc/self/task/{each}/stat", 0)
        except OSError:
            continue  # it has ended
        try:
            count += read(handle, 4096).rpartition(b")")[2].split()[0] == b"R"
        except OSError:
            pass
        finally:
            close(handle)
    return count

class Ends:
    def __del__(self, sleep=time.sleep, running=running):
        while running(self.threads):
            sleep(0.001)  # they come back to an interpreter that ends

def sum_up():
    while True:
        crc32c(data)

ends = Ends()
threads = [threading.Thread(target=sum_up, daemon=True) for _ in range(4)]
for each in threads:
    each.start()
ends.threads = [each.native_id for each in threads]
while running(ends.threads) < len(threads):  # who waits for the interpreter sleeps
    time.sleep(0.001)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system what threads do")
def test_the_interpreter_ends_while_threads_are_in_kernels():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

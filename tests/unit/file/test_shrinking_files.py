"""A local file truncated while readers are open raises errors instead of killing the process.

Reading a page of a map behind the file's end does kill it, so each case runs in a process of its
own, whose exit is looked at.
"""

import os
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import pyarrow as pa
from lancelet.errors import CorruptDataError
from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.kernels import NATIVE

path, version, is_warm = sys.argv[1:]
table = pa.table({
    "empty lists": pa.array([None, []] * 50_000, pa.list_(pa.int8())),
    "strings": [str(row % 300) for row in range(100_000)],
})
with LanceFileWriter(path, version=version) as writer:
    writer.write_batch(table)
reader = LanceFileReader(path)
if is_warm == "warm":
    reader.take_rows([5]).to_table()
os.truncate(path, 100)
reads = [
    (lambda: reader.read_all().to_table(), table),
    (lambda: pa.Table.from_batches(reader.read_all().to_batches()), table),
    (lambda: reader.take_rows([7]).to_table(), table.slice(7, 1)),
    (lambda: reader.metadata() and None, None),
    (lambda: reader.read_global_buffer(0) and None, None),
]
for read, expected in reads:
    try:
        found = read()
    except CorruptDataError as error:
        assert "truncated" in str(error), error
    else:
        # Without a map, the bytes read to open the file are in memory.
        assert is_warm == "warm" or not NATIVE, "nothing was read before"
        assert found == expected
"""


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("state", ["cold", "warm"])
def test_a_file_that_shrinks_is_an_error_and_not_a_crash(tmp_path, version, state):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "f.lance"), version, state]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


LIFETIME = """
import faulthandler, os, sys
import numpy as np
import pyarrow as pa
from lancelet.buffers import ByteRanges
from lancelet.errors import CorruptDataError
from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.io.local import LocalStore

folder, version, verify, handler = sys.argv[1:]
if handler == "before":
    faulthandler.enable()
numbers = np.random.default_rng(0).normal(size=100_000)
vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 100)
table = pa.table({"numbers": numbers[:1000], "vectors": vectors, "texts": ["x" * 999] * 1000})
with LanceFileWriter(f"{folder}/f.lance", version=version) as writer:
    writer.write_batch(table)
reader = LanceFileReader(f"{folder}/f.lance", verify=verify)
whole, some = reader.read_all().to_table(), reader.take_rows([3, 500]).to_table()
batches = list(reader.read_all(batch_size=100).to_batches())
source = LocalStore(folder).open_reader("f.lance")
middle = source.size // 2 + 5
held, tail = source.read_ranges(ByteRanges.of((middle, 9000))), source.read_tail(5000)
copies = held.slice_bytes(0).tobytes(), tail.tobytes()
mapped = source.mapped()
if handler == "after":
    faulthandler.enable()

# In the middle of a page and of the read: the rest of the page becomes zeros.
os.truncate(f"{folder}/f.lance", middle)
assert whole.equals(table) and some.equals(table.take([3, 500]))
assert pa.Table.from_batches(batches).equals(table)
assert (held.slice_bytes(0).tobytes(), tail.tobytes()) == copies
for read in (
    lambda: reader.read_all().to_table(),
    lambda: reader.take_rows([3, 999]).to_table(),
    lambda: source.read_ranges(ByteRanges.of((middle - 10, 20))),
    lambda: source.read_tail(10),
):
    try:
        read()
    except CorruptDataError as error:
        assert "truncated" in str(error), error
    else:
        raise AssertionError("no error")
# Accesses to the map return zeros.
assert mapped is None or not mapped.source[middle:].any()
"""


CASES = [
    (version, verify, "none") for version in ("2.0", "2.2", "2.3") for verify in ("full", "off")
]
HANDLERS = [("2.2", "off", "before"), ("2.2", "off", "after")]


@pytest.mark.parametrize(("version", "verify", "handler"), [*CASES, *HANDLERS])
def test_read_values_stay_valid_when_the_file_is_truncated(tmp_path, version, verify, handler):
    command = [sys.executable, "-c", LIFETIME, str(tmp_path), version, verify, handler]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_a_bus_error_of_others_ends_the_process_as_before(tmp_path):
    script = """
import mmap, os, sys
import lancelet.io.local
from lancelet.io.local import LocalStore
store = LocalStore(sys.argv[1])
store.put("a", bytes(9000))
reader = store.open_reader("a")
with open(f"{sys.argv[1]}/b", "wb") as file:
    file.write(bytes(9000))
with open(f"{sys.argv[1]}/b", "rb") as file:
    others = mmap.mmap(file.fileno(), 9000, access=mmap.ACCESS_READ)
os.truncate(f"{sys.argv[1]}/b", 0)
print(others[8999])
"""
    # A sanitizer would handle the signal by default.
    options = f"{os.environ.get('ASAN_OPTIONS', '')}:handle_sigbus=0".lstrip(":")
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        check=False,
        env={**os.environ, "ASAN_OPTIONS": options},
    )
    assert -found.returncode == signal.SIGBUS

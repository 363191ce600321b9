"""A local file that is cut while readers are open gives errors; it must not kill the process.

Reading a page of a map behind the file's end does kill it, so each case runs in a process of its
own, whose exit is looked at.
"""

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import pyarrow as pa
from lancelet.errors import CorruptDataError
from lancelet.file import LanceFileReader, LanceFileWriter

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
    lambda: reader.read_all().to_table(),
    lambda: list(reader.read_all().to_batches()),
    lambda: reader.take_rows([7]).to_table(),
    lambda: reader.metadata(),
    lambda: reader.read_global_buffer(0),
]
for read in reads:
    try:
        read()
    except CorruptDataError as error:
        assert "shorter" in str(error), error
    else:
        assert is_warm == "warm", "nothing was read before"
"""


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("state", ["cold", "warm"])
def test_a_file_that_shrinks_is_an_error_and_not_a_crash(tmp_path, version, state):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "f.lance"), version, state]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr

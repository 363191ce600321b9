"""Values of a damaged file contain no uninitialized memory.

Each damaged file is read by two processes whose allocators fill memory with different bytes. Where
their results differ, a result has bytes that no one wrote.
"""

import os
import shutil
import subprocess
import sys

import lance
import lance.file
import pyarrow as pa
import pytest

DAMAGED_FILES = 200
FILLS = (85, 170)
ROWS = pa.table(
    {
        "i": pa.array([1, None, 3] * 50),
        "s": ["a", "bb", None] * 50,
        "l": pa.array([[1, 2], None, []] * 50, pa.list_(pa.int32())),
        "b": [True, None, False] * 50,
        "v": pa.array([[1.0, 2.0]] * 150, pa.list_(pa.float32(), 2)),
        "c": ["long text " * 20] * 150,
    }
)
READ = """
import hashlib, io, pathlib, random, sys
import numpy as np
import pyarrow as pa
import lancelet
from lancelet.errors import LanceletError
from lancelet.file import LanceFileReader

def read(copy):
    table = copy.parent.parent
    if copy.parent.name == "data":  # files of version 0.1 are read as part of their table
        return lancelet.dataset(str(table)).to_table()
    return LanceFileReader(str(copy)).read_all().to_table()

print("control", hashlib.sha256(np.empty(50_000, np.uint8).tobytes()).hexdigest())
data = pathlib.Path(sys.argv[1]).read_bytes()
copy = pathlib.Path(sys.argv[2])
chance = random.Random(7)
for number in range(int(sys.argv[3])):
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(damaged))
        damaged[at] = chance.choice((0, 255, 127, 128, damaged[at] ^ (1 << chance.randrange(8))))
    copy.unlink(missing_ok=True)
    copy.write_bytes(damaged)
    try:
        table = read(copy)
    except LanceletError as error:
        print(number, type(error).__name__)
        continue
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    print(number, "read", hashlib.sha256(sink.getvalue()).hexdigest())
"""


def outcomes(path, copy, kernels, fill):
    """Return what reading damaged copies gives if new memory is filled with a byte."""
    environment = {
        **os.environ,
        "LANCELET_KERNELS": kernels,
        "MALLOC_PERTURB_": str(fill),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    command = [sys.executable, "-W", "ignore", "-c", READ, str(path), str(copy), str(DAMAGED_FILES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    control, *rest = done.stdout.splitlines()
    return control, rest


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc fills new memory on request")
@pytest.mark.parametrize("kernels", ["native", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_damaged_files_show_no_memory_of_the_process(tmp_path, version, kernels):
    if version == "0.1":
        table = tmp_path / "t"
        lance.write_dataset(ROWS, str(table), data_storage_version="legacy")
        (path,) = (table / "data").glob("*.lance")
        copies = [tmp_path / str(fill) for fill in FILLS]
        copies = [shutil.copytree(table, each) / "data" / path.name for each in copies]
    else:
        path = tmp_path / "file.lance"
        copies = [tmp_path / f"{fill}.lance" for fill in FILLS]
        with lance.file.LanceFileWriter(str(path), ROWS.schema, version=version) as writer:
            for batch in ROWS.to_batches():
                writer.write_batch(batch)
    first, second = (
        outcomes(path, copy, kernels, fill) for copy, fill in zip(copies, FILLS, strict=True)
    )
    assert first[0] != second[0], "memory is not filled"
    assert first[1] == second[1]
    assert len(first[1]) == DAMAGED_FILES
    assert sum(" read " in line for line in first[1]) > DAMAGED_FILES // 10

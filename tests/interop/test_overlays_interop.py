"""Each implementation reads the overlays of the other.

The reference takes them only where a variable of its environment says so, when it first looks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lancelet

PROGRAM = """
import os, sys
os.environ["LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"] = "1"
import pyarrow as pa
import lance, lancelet
from lance.file import LanceFileWriter

writer, uri = {{"lance": lance, "lancelet": lancelet}}[sys.argv[1]], sys.argv[2]
rows = pa.table({{"id": pa.array(range(8), pa.int32()), "t": [str(row) for row in range(8)]}})
dataset = writer.write_dataset(rows, uri, data_storage_version="{version}", max_rows_per_file=5)
dataset.create_scalar_index("t", "BTREE")
operations = writer.LanceOperation
for number, (offsets, values) in enumerate([([4, 1], ["x", "y"]), ([1], ["z"])]):
    path = uri + "/data/" + str(number) + ".lance"
    with LanceFileWriter(path, version="{version}") as file:
        file.write_batch(pa.table({{"t": values}}))
    major, minor = map(int, "{version}".split("."))
    file = writer.fragment.DataFile(path=str(number) + ".lance", fields=[1], column_indices=[0],
        file_major_version=major, file_minor_version=minor, file_size_bytes=os.path.getsize(path))
    overlay = operations.DataOverlayFile(file, offsets=offsets)
    operation = operations.DataOverlay([operations.DataOverlayGroup(0, [overlay])])
    dataset = writer.LanceDataset.commit(dataset, operation, read_version=dataset.version)
for reader in (lance, lancelet):
    found = reader.dataset(uri)
    print(found.to_table()["t"].to_pylist(), found.to_table(filter="t = 'z'")["id"].to_pylist(),
          found.take([4])["t"].to_pylist(), found.count_rows("t = '1'"))
"""

EXPECTED = "['0', 'z', '2', '3', 'y', '5', '6', '7'] [1] ['y'] 0\n"


@pytest.mark.interop
@pytest.mark.parametrize("writer", ["lance", "lancelet"])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_both_read_overlays_of_either(
    tmp_path: Path, run_program, writer: str, version: str
) -> None:
    printed = run_program(PROGRAM.format(version=version), writer, str(tmp_path / "t"))
    assert printed == EXPECTED * 2


@pytest.mark.interop
def test_overlays_of_the_reference_are_compacted_to_their_values(
    tmp_path: Path, run_program
) -> None:
    uri = str(tmp_path / "t")
    run_program(PROGRAM.format(version="2.2"), "lance", uri)
    dataset = lancelet.dataset(uri)
    dataset.drop_index("t_idx")
    dataset.optimize.compact_files()
    (fragment,) = dataset.get_fragments()
    assert fragment.metadata.overlays == []
    program = "import lance, sys; print(lance.dataset(sys.argv[1]).to_table()['t'].to_pylist())"
    assert run_program(program, uri) == "['0', 'z', '2', '3', 'y', '5', '6', '7']\n"

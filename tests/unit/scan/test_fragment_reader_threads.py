"""The memory of a fragment reader is measured while other threads read through it."""

import sys
import threading

import pyarrow as pa

import lancelet
from lancelet.scan.fragment_reader import FragmentReader


def test_memory_is_measured_while_projections_are_added(tmp_path):
    columns = {f"c{number}": [number] for number in range(40)}
    dataset = lancelet.write_dataset(pa.table(columns), str(tmp_path / "t"))
    snapshot = dataset.snapshot
    reader = FragmentReader(snapshot, snapshot.fragments[0])
    fields = snapshot.manifest.schema.fields
    errors, is_done = [], threading.Event()

    def measure():
        try:
            while not is_done.is_set():
                assert reader.memory_bytes > 0
        except RuntimeError as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=measure)
    thread.start()
    try:
        for first in range(len(fields)):
            for last in range(first + 1, len(fields)):
                reader.file_parts(tuple(fields[first:last]))
    finally:
        is_done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert errors == []

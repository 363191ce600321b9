"""Write the files that fuzzing starts from: a few rows of everything, in every version.

    python fuzz/make_corpus.py fuzz/corpus

Each file is small, since a mutation should hit something that matters. Files of ours are written
without checksums, which would only take room; those of the reference are added where it is
installed, and it alone writes 0.1 on its own.

    file/2.1-ours-lists.lance           version, writer and table of a data file
    manifest/with_deletions-2.manifest  a dataset of tests/golden/historical and its version
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from lancelet.file.open import create_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore

VERSIONS = ("2.0", "2.1", "2.2", "2.3")
HISTORICAL = Path(__file__).resolve().parents[1] / "tests" / "golden" / "historical"
MANIFEST_BYTES_MAX = 4096
ROWS = 200
ZONE_ROWS = 64


def tables(version: str) -> dict[str, pa.Table]:
    """Return tables that use every layout and most encodings."""
    random = np.random.default_rng(7)
    count = np.arange(ROWS)
    mask = random.random(ROWS) < 0.2
    words = pa.array([f"{'word' * (n % 3)}{n % 11}" for n in count], mask=mask)
    lists = pa.array(
        [None if n % 17 == 0 else list(range(n, n + n % 4)) for n in range(ROWS // 4)],
        pa.list_(pa.int32()),
    )
    nested = pa.array(
        [
            {"a": n, "b": [{"c": "x" * (n % 5)} for _ in range(n % 3)]} if n % 9 else None
            for n in range(ROWS // 4)
        ],
        pa.struct([("a", pa.int16()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
    )
    long = [bytes(random.bytes(150)) if n % 5 else b"" for n in range(24)]
    found = {
        "numbers": pa.table(
            {
                "packed": pa.array(random.integers(0, 100, ROWS), pa.int64(), mask=mask),
                "runs": pa.array(np.repeat(count[: ROWS // 50], 50), pa.int16()),
                "flags": pa.array(count % 3 == 0),
                "floats": pa.array(np.round(random.random(ROWS), 1), pa.float32()),
                "same": pa.array(np.full(ROWS, 7, np.uint8)),
                "nothing": pa.nulls(ROWS, pa.date32()),
            }
        ),
        "strings": pa.table(
            {
                "words": words,
                "texts": pa.array([f"row {n} of some more" for n in count]),
                "fixed": pa.array([bytes([n % 256] * 3) for n in count], pa.binary(3)),
                "keyed": words.dictionary_encode(),
            }
        ),
        "lists": pa.table({"lists": lists}),
        "nested": pa.table({"nested": nested}),
        "wide": pa.table(
            {
                "long": pa.array(long, pa.large_binary()),
                "vectors": pa.FixedSizeListArray.from_arrays(
                    pa.array(random.random(24 * 40), pa.float32()), 40
                ),
            }
        ),
        "blobs": pa.table(
            {"blobs": pa.array([*long, None], pa.large_binary())},
            schema=pa.schema(
                [pa.field("blobs", pa.large_binary(), metadata={"lance-encoding:blob": "true"})]
            ),
        ),
        "compressed": pa.table(
            {"c": pa.array([f"{n % 7} and again {n % 7}" for n in count])},
            schema=pa.schema(
                [pa.field("c", pa.string(), metadata={"lance-encoding:compression": "zstd"})]
            ),
        ),
    }
    lacking = {"2.0": {"nested"}, "2.3": {"blobs"}}.get(version, set())
    return {name: table for name, table in found.items() if name not in lacking}


def written_by_us(table: pa.Table, version: str) -> bytes:
    """Return a table as a file of ours, with statistics of zones and without checksums."""
    store = MemoryStore("corpus")
    options = WriterOptions(
        version=FileVersion.parse(version), checksums=False, zone_rows=ZONE_ROWS
    )
    writer = create_data_file(store, "f.lance", Schema.from_arrow(table.schema), options)
    writer.write(table)
    writer.finish()
    return store.read("f.lance")


def written_by_the_reference(table: pa.Table, version: str) -> bytes:
    """Return a table as a file of the reference implementation."""
    import lance.file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.lance"
        with lance.file.LanceFileWriter(str(path), table.schema, version=version) as writer:
            writer.write_batch(table)
        return path.read_bytes()


def written_as_0_1(table: pa.Table) -> bytes:
    """Return the data file of a dataset of 0.1."""
    import lance

    with tempfile.TemporaryDirectory() as folder:
        lance.write_dataset(table, folder, data_storage_version="legacy")
        (path,) = Path(folder, "data").glob("*.lance")
        return path.read_bytes()


def data_files() -> dict[str, bytes]:
    """Return the data files of the corpus by their names."""
    files: dict[str, bytes] = {}
    has_reference = importlib.util.find_spec("lance") is not None
    for version in VERSIONS:
        for name, table in tables(version).items():
            files[f"{version}-ours-{name}.lance"] = written_by_us(table, version)
            if has_reference:
                files[f"{version}-theirs-{name}.lance"] = written_by_the_reference(table, version)
    if has_reference:
        for name in ("numbers", "strings", "lists", "wide"):
            files[f"0.1-theirs-{name}.lance"] = written_as_0_1(tables("2.0")[name])
    return files


def manifests() -> dict[str, bytes]:
    """Return small manifests of old datasets by their names."""
    return {
        f"{path.parents[1].stem}-{path.name}": path.read_bytes()
        for path in sorted(HISTORICAL.rglob("*.manifest"))
        if path.stat().st_size <= MANIFEST_BYTES_MAX
    }


def main(folder: Path) -> None:
    """Write the corpus and print its size."""
    for target, files in (("file", data_files()), ("manifest", manifests())):
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / target / name).write_bytes(data)
        print(f"{target}: {len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

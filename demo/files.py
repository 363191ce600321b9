"""A tour of data files: write, compare sizes, read a few rows of many, find a flipped bit.

    make demo
    python demo/files.py --folder demo-output [--small]

Nothing but lancelet and pyarrow is needed. Figures are of the machine that it runs on; for
comparisons with the reference implementation see `make bench`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lancelet.errors import CorruptDataError
from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.file.open import open_data_file
from lancelet.io.open import open_store

WORDS = np.array(["quick", "brown", "foxes", "jump", "over", "lazy", "dogs", "and", "find", "what"])


def orders(rows: int) -> pa.Table:
    """Return columns of the kinds that tables are made of."""
    random = np.random.default_rng(1)
    cents = random.integers(100, 1_000_000, rows)
    start = np.datetime64("2026-01-01", "us")
    words = WORDS[random.integers(0, len(WORDS), (rows, 5))]
    lengths = random.integers(0, 4, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    vectors = random.standard_normal(rows * 16, dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "at": pa.array(start + np.cumsum(random.integers(0, 5_000_000, rows))).cast(
                pa.timestamp("us", "UTC")
            ),
            "price": pa.array(cents / 100),
            "amount": decimals(cents),
            "status": pa.array(np.array(["new", "paid", "sent"])[random.integers(0, 3, rows)]),
            "comment": pa.array([" ".join(line) for line in words.tolist()]),
            "items": pa.ListArray.from_arrays(
                pa.array(offsets), pa.array(random.integers(0, 500, int(offsets[-1])), pa.int32())
            ),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 16),
        }
    )


def decimals(cents: np.ndarray) -> pa.Array:
    """Return hundredths as decimals, whose stored numbers are the same in 128 bits."""
    wide = np.stack([cents, np.zeros_like(cents)], axis=1)
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(wide)])


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def timed(what: str, work: Callable[[], pa.Table]) -> pa.Table:
    """Run some work and print how long it took."""
    start = time.perf_counter()
    result = work()
    milliseconds = (time.perf_counter() - start) * 1e3
    print(f"{what:<44} {result.num_rows:>9,} rows {milliseconds:>9.2f} ms")
    return result


def write(path: Path, table: pa.Table) -> LanceFileWriter:
    heading(f"Write {table.num_rows:,} rows")
    start = time.perf_counter()
    with LanceFileWriter(path, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=65_536):
            writer.write_batch(batch)
    seconds = time.perf_counter() - start
    print(f"{table.nbytes:,} bytes in memory, {writer.size_bytes:,} in the file, {seconds:.2f} s")
    return writer


def compare_sizes(path: Path, table: pa.Table, folder: Path) -> None:
    heading("Bytes per row, beside Parquet with zstd")
    parquet = folder / "orders.parquet"
    pq.write_table(table, parquet, compression="zstd")
    groups = pq.read_metadata(parquet)
    theirs = dict.fromkeys(table.column_names, 0)
    for group in range(groups.num_row_groups):
        for column in range(groups.num_columns):
            chunk = groups.row_group(group).column(column)
            theirs[chunk.path_in_schema.split(".")[0]] += chunk.total_compressed_size
    statistics = LanceFileReader(path).file_statistics()
    print(f"{'column':<12} {'in memory':>10} {'lancelet':>10} {'parquet':>10}")
    rows = table.num_rows
    for name, column in zip(table.column_names, statistics.columns, strict=True):
        print(
            f"{name:<12} {table[name].nbytes / rows:>10.2f} "
            f"{column.size_bytes / rows:>10.2f} {theirs[name] / rows:>10.2f}"
        )
    sizes = (table.nbytes, path.stat().st_size, parquet.stat().st_size)
    print(f"{'the file':<12} " + " ".join(f"{size / rows:>10.2f}" for size in sizes))


def report_encodings(writer: LanceFileWriter) -> None:
    heading("What the writer chose for the first page of each column")
    seen = set()
    for choice in writer.encoding_report():
        if choice.path not in seen:
            seen.add(choice.path)
            print(f"{choice.path:<16} {choice.layout:<11} {choice.encoding}")
            for refused, why in list(choice.refused.items())[:2]:
                print(f"{'':<16} not         {refused}: {why}")


def read(path: Path, table: pa.Table) -> None:
    heading("Read")
    everything = timed("all of it", lambda: LanceFileReader(path).read_all().to_table())
    assert everything.equals(table.combine_chunks()), "what was written is what is read"
    one = LanceFileReader(path, columns=["price"])
    timed("one column", lambda: one.read_all().to_table())
    reader = LanceFileReader(path)
    random = np.random.default_rng(2)
    for count in (1, 100, 1_000):
        rows = np.sort(random.choice(table.num_rows, count, replace=False)).tolist()
        found = timed(f"{count} rows anywhere", lambda rows=rows: reader.take_rows(rows).to_table())
        assert found.equals(table.take(pa.array(rows)).combine_chunks())


def find_damage(path: Path, folder: Path) -> None:
    heading("Flip one bit of the file")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    damaged = folder / "damaged.lance"
    damaged.write_bytes(bytes(data))
    try:
        LanceFileReader(damaged).read_all().to_table()
    except CorruptDataError as error:
        print(f"CorruptDataError: {error}")
    else:
        raise AssertionError("a flipped bit went unnoticed")


def show_zones(path: Path) -> None:
    heading("What the file knows of its zones")
    store, name = open_store(path)
    reader = open_data_file(store, name)
    zones = reader.zone_statistics(reader.schema.field_by_path("at"))
    assert zones is not None, "files of ours keep statistics"
    print(f"{len(zones)} zones of {zones.rows_per_zone:,} rows; of the column `at`:")
    for zone in range(min(3, len(zones))):
        low, high = (bound[zone].as_py() for bound in (zones.minimum, zones.maximum))
        print(f"zone {zone}: {low} to {high}, {zones.null_count[zone]} nulls")
    wanted = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    low = pc.less_equal(zones.minimum, pa.scalar(wanted, zones.minimum.type))
    high = pc.greater_equal(zones.maximum, pa.scalar(wanted, zones.maximum.type))
    print(f"rows of {wanted} can be in {pc.sum(pc.and_(low, high)).as_py()} of them")
    reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("demo-output"))
    parser.add_argument("--small", action="store_true", help="a tenth of the rows")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "orders.lance"
    table = orders(50_000 if arguments.small else 500_000)
    writer = write(path, table)
    compare_sizes(path, table, arguments.folder)
    report_encodings(writer)
    read(path, table)
    find_damage(path, arguments.folder)
    show_zones(path)


if __name__ == "__main__":
    main()

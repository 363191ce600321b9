"""A program of many public methods, each with the types that its documentation says.

`mypy --strict` checks it with the sources, a test has pyright check it, and another runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa

import lancelet
from lancelet import LanceDataset, LanceFragment, LanceOperation, LanceScanner, aio
from lancelet.change.dry_run import ChangeReport
from lancelet.progress import IndexProgress

vectors = pa.array([[0.0, 1.0], [1.0, 0.0]], pa.list_(pa.float32(), 2))
rows: pa.Table = pa.table({"a": [1, 2], "s": ["x", "y"], "v": vectors})
dataset: LanceDataset = lancelet.write_dataset(rows, "memory://typed")
table: pa.Table = dataset.to_table(["a"], filter="a > 1", limit=3, order_by="a desc")
batches: Iterator[pa.RecordBatch] = dataset.to_batches({"b": "a + 1"}, batch_size=10)
scanner: LanceScanner = dataset.scanner(columns=["a"], with_row_id=True)
text: str = scanner.explain_plan()
measured: str = scanner.analyze_plan()
count: int = dataset.count_rows("a > 0")
taken: pa.Table = dataset.take([0, 1], ["a"])
head: pa.Table = dataset.head(1)
part: pa.Table = dataset.slice(0, 1)
dataset.insert(rows)
dataset.update({"s": "'z'"}, where="a = 1")
merged = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
inserted: int = merged.execute(rows)["num_inserted_rows"]
dataset.add_columns({"b": "a * 2"})
dataset.alter_columns({"path": "b", "name": "c"})
dataset.drop_columns(["c"])
dataset.create_scalar_index("a", "BTREE")
names: list[str] = [index.name for index in dataset.describe_indices()]
dataset.drop_index("a_idx")
dataset.optimize.compact_files(target_rows_per_fragment=100)
dataset.optimize.optimize_indices()
dataset.tags.create("first", 1)
dataset.tags.delete("first")
version: int = dataset.version
latest: int = dataset.latest_version
old: LanceDataset = dataset.checkout_version(1)
old.restore()
dataset.checkout_latest()
fragments: list[LanceFragment] = dataset.get_fragments()
schema: pa.Schema = dataset.schema
dataset.validate()
found: pa.Table = dataset.sql("SELECT * FROM dataset").build().to_table()
again: LanceDataset = lancelet.dataset("memory://typed", version=1)
deleted: int = dataset.delete("a = 3")["num_deleted_rows"]
preview: int = dataset.delete("a = 1", dry_run=True).rows
new: ChangeReport = lancelet.write_dataset(rows, "memory://typed", mode="append", dry_run=True)
LanceDataset.drop("memory://typed-clone", ignore_not_found=True)
clone: LanceDataset = dataset.shallow_clone("memory://typed-clone", 1)
cloned: ChangeReport = dataset.shallow_clone("memory://typed-other", 1, dry_run=True)
append = LanceOperation.Append([])
planned: ChangeReport = LanceDataset.commit(dataset, append, dataset.version, dry_run=True)
committed: LanceDataset = LanceDataset.commit(dataset, append, dataset.version)
dataset.checkout_latest()
events: list[IndexProgress] = []
dataset.optimize.compact_files(progress=events.append)
indexed: LanceDataset = dataset.create_index("v", "IVF_FLAT", num_partitions=1)
nearest: pa.Table = dataset.to_table(nearest={"column": "v", "q": [0.0, 0.0], "k": 1})


async def serve() -> int:
    table = await aio.dataset("memory://typed")
    async for batch in table.to_batches(["a"], filter="a > 0"):
        assert batch.num_rows >= 0
    removed: int = (await table.delete("a = 9"))["num_deleted_rows"]
    found: pa.Table = await table.to_table(["a"], limit=3)
    count: int = await table.count_rows("a > 0")
    return removed + int(found.num_rows) + count


total: int = asyncio.run(serve())

"""Runs of public methods on a small table, for libraries with the API of pylance.

    result_of(lance, RUNS["LanceDataset.count_rows"], uri) == result_of(lancelet, ..., other_uri)

Results are converted to comparable values: tables to rows, objects to their public attributes.
Values that differ between runs (times, ids, paths, sizes) are omitted or masked.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Run = Callable[[ModuleType, Any], Any]

_HIDDEN: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[01]{20,}[0-9a-f]+|/\S*/")
_DEPTH: Final = 6
ROWS: Final = 60


@dataclasses.dataclass(frozen=True)
class Raised:
    """An error, represented by its built-in base classes."""

    kinds: tuple[type, ...]

    def is_caught_as(self, other: Any) -> bool:
        """Return whether a handler of another error also catches this one."""
        return isinstance(other, Raised) and other.kinds[0] in self.kinds


def table_for_runs(library: ModuleType, uri: str) -> None:
    """Write a table of two fragments with deleted rows, an index, a tag and a branch."""
    numbers = range(ROWS)
    vectors = pa.array((np.arange(ROWS * 4) % 7).astype(np.float32))
    rows = pa.table(
        {
            "id": numbers,
            "word": [None if n % 10 == 7 else f"word {n % 5}" for n in numbers],
            "at": pa.array(numbers, pa.timestamp("us")),
            "v": pa.FixedSizeListArray.from_arrays(vectors, 4),
            "st": [{"a": n, "b": [n, n + 1]} for n in numbers],
        }
    )
    dataset = library.write_dataset(rows, uri, max_rows_per_file=40)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("word", "INVERTED")
    dataset.delete("id IN (3, 50)")
    dataset.tags.create("start", 1)
    dataset.create_branch("side")
    dataset.update_config({"owner": "ann"})


def result_of(library: ModuleType, run: Run, uri: str) -> Any:
    """Return the comparable result of a run, or its error."""
    with ThreadPoolExecutor(1) as pool:  # any error is a result
        ended = pool.submit(lambda: comparable(run(library, library.dataset(uri))))
    error = ended.exception()
    if error is None:
        return ended.result()
    return Raised(tuple(kind for kind in type(error).__mro__ if kind.__module__ == "builtins"))


def comparable(value: Any, depth: int = _DEPTH) -> Any:
    """Return a value as numbers, texts and lists, without values that differ between runs."""
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    if isinstance(value, str):
        return _HIDDEN.sub("*", value)
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        return [value.schema.to_string(), value.to_pylist()]
    if isinstance(value, (pa.Schema, pa.DataType, pa.Field)):
        return str(value)
    if isinstance(value, (dt.datetime, dt.timedelta)):
        return type(value).__name__
    if isinstance(value, np.ndarray):
        return value.tolist()
    if depth == 0:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {str(key): comparable(each, depth - 1) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(comparable(each, depth - 1)) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = sorted(field.name for field in dataclasses.fields(value))
        return {name: comparable(getattr(value, name), depth - 1) for name in names}
    if isinstance(value, Iterable):
        return [comparable(each, depth - 1) for each in value]
    return type(value).__name__


def _after(change: Callable[[Any], Any]) -> Run:
    """Return a run that changes the table and returns its rows."""

    def run(library: ModuleType, dataset: Any) -> Any:
        returned = change(dataset)
        rows = library.dataset(dataset.uri).to_table()
        return returned, rows, library.dataset(dataset.uri).version

    return run


def _merge(library: ModuleType, dataset: Any) -> Any:
    rows = pa.table({"id": [5, 99], "word": ["new", "newer"]})
    merge = dataset.merge_insert("id").when_matched_update_all()
    return (
        merge.execute(rows),
        library.dataset(dataset.uri).to_table(["id", "word"]).sort_by("id"),
    )


def _compacted(dataset: Any) -> list[int]:
    found = dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    return [found.fragments_removed, found.fragments_added]


_QUERY: Final = {"column": "v", "q": np.zeros(4, np.float32), "k": 5}

RUNS: Final[dict[str, Run]] = {
    "LanceDataset.schema": lambda _, d: d.schema,
    "LanceDataset.lance_schema": lambda _, d: [field.name() for field in d.lance_schema.fields()],
    "LanceDataset.data_storage_version": lambda _, d: d.data_storage_version,
    "LanceDataset.has_stable_row_ids": lambda _, d: d.has_stable_row_ids,
    "LanceDataset.max_field_id": lambda _, d: d.max_field_id,
    "LanceDataset.has_index": lambda _, d: d.has_index,
    "LanceDataset.to_table": lambda _, d: d.to_table(),
    "LanceDataset.to_table(columns)": lambda _, d: d.to_table({"x": "id * 2", "st.a": "st.a"}),
    "LanceDataset.to_table(filter)": lambda _, d: d.to_table(filter="id > 5 AND word = 'word 2'"),
    "LanceDataset.to_table(expression)": lambda _, d: d.to_table(filter=pc.field("id") < 4),
    "LanceDataset.to_table(limit)": lambda _, d: d.to_table(["id"], limit=7, offset=38),
    "LanceDataset.to_table(ids)": lambda _, d: d.to_table(
        ["id"], with_row_id=True, with_row_address=True
    ),
    "LanceDataset.to_table(order_by)": lambda library, d: d.to_table(
        ["id"],
        order_by=[library.dataset.ColumnOrdering("word"), library.dataset.ColumnOrdering("id")],
        limit=9,
    ),
    "LanceDataset.to_table(nearest)": lambda _, d: d.to_table(["_distance"], nearest=_QUERY),
    "LanceDataset.to_table(text)": lambda _, d: sorted(
        d.to_table(["id"], full_text_query="word", limit=100)["id"].to_pylist()
    ),
    "LanceDataset.to_table(unknown column)": lambda _, d: d.to_table(["nothing"]),
    "LanceDataset.to_table(wrong filter)": lambda _, d: d.to_table(filter="id >"),
    "LanceDataset.to_pandas": lambda _, d: pa.Table.from_pandas(d.to_pandas().drop(columns="v")),
    "LanceDataset.to_batches": lambda _, d: [
        batch.num_rows for batch in d.to_batches(["id"], batch_size=16)
    ],
    "LanceDataset.scanner": lambda _, d: d.scanner(["id"], filter="id < 9").count_rows(),
    "LanceDataset.head": lambda _, d: d.head(5),
    "LanceDataset.take": lambda _, d: d.take([5, 1, 1, 57], ["id"]),
    "LanceDataset.take(beyond)": lambda _, d: d.take([5000]),
    "LanceDataset.count_rows": lambda _, d: [d.count_rows(), d.count_rows("word IS NULL")],
    "LanceDataset.sample": lambda _, d: d.sample(9).num_rows,
    "LanceDataset.sql": lambda _, d: [
        b.to_pylist() for b in d.sql("SELECT sum(id) AS s FROM dataset").build().to_batch_records()
    ],
    "LanceDataset.get_fragments": lambda _, d: [f.count_rows() for f in d.get_fragments()],
    "LanceDataset.fragment_ids": lambda _, d: list(d.fragment_ids),
    "LanceDataset.get_fragment": lambda _, d: [
        d.get_fragment(1).physical_rows,
        d.get_fragment(7),
    ],
    "LanceDataset.versions": lambda _, d: [each["version"] for each in d.versions()],
    "LanceDataset.version": lambda _, d: [d.version, d.latest_version],
    "LanceDataset.checkout_version": lambda _, d: d.checkout_version(1).count_rows(),
    "LanceDataset.checkout_version(tag)": lambda _, d: d.checkout_version("start").version,
    "LanceDataset.checkout_version(absent)": lambda _, d: d.checkout_version(99),
    "LanceDataset.metadata": lambda _, d: dict(d.metadata),
    "LanceDataset.schema_metadata": lambda _, d: dict(d.schema_metadata),
    "LanceDataset.config": lambda _, d: d.config(),
    "LanceDataset.validate": lambda _, d: d.validate(),
    "LanceDataset.describe_indices": lambda _, d: [
        [each.name, each.index_type, each.num_rows_indexed, list(each.field_names)]
        for each in d.describe_indices()
    ],
    "LanceDataset.stats.dataset_stats": lambda _, d: d.stats.dataset_stats(),
    "LanceDataset.stats.data_stats": lambda _, d: [each.id for each in d.stats.data_stats().fields],
    "LanceDataset.stats.index_stats": lambda _, d: {
        name: value
        for name, value in d.stats.index_stats("id_idx").items()
        if name.startswith("num_") or name in ("index_type", "name")
    },
    "LanceDataset.stats.index_stats(absent)": lambda _, d: d.stats.index_stats("nothing"),
    "LanceDataset.get_transactions": lambda _, d: [
        each and type(each.operation).__name__ for each in d.get_transactions(9)
    ],
    "LanceDataset.read_transaction": lambda _, d: type(d.read_transaction(1).operation).__name__,
    "LanceDataset.tags.list": lambda _, d: [
        [name, each["version"]] for name, each in d.tags.list().items()
    ],
    "LanceDataset.tags.get_version": lambda _, d: d.tags.get_version("start"),
    "LanceDataset.tags.create(again)": lambda _, d: d.tags.create("start", 1),
    "LanceDataset.tags.delete(absent)": lambda _, d: d.tags.delete("nothing"),
    "LanceDataset.branches.list": lambda _, d: [
        [name, each["parent_version"]] for name, each in d.branches.list().items()
    ],
    "LanceDataset.branches.delete": lambda _, d: [d.branches.delete("side"), d.branches.list()],
    "LanceDataset.base_paths": lambda _, d: d.base_paths(),
    "LanceDataset.delete": _after(lambda d: d.delete("id > 40")),
    "LanceDataset.truncate_table": _after(lambda d: d.truncate_table()),
    "LanceDataset.insert": _after(lambda d: d.insert(d.to_table(limit=3))),
    "LanceDataset.update": _after(lambda d: d.update({"word": "'w'"}, where="id < 5")),
    "LanceDataset.update(absent)": _after(lambda d: d.update({"nothing": "1"})),
    "LanceDataset.merge_insert": _merge,
    "LanceDataset.add_columns": _after(lambda d: d.add_columns({"twice": "id * 2"})),
    "LanceDataset.add_columns(again)": _after(lambda d: d.add_columns({"id": "1"})),
    "LanceDataset.drop_columns": _after(lambda d: d.drop_columns(["v"])),
    "LanceDataset.drop_columns(all)": _after(lambda d: d.drop_columns(d.schema.names)),
    "LanceDataset.alter_columns": _after(
        lambda d: d.alter_columns({"path": "word", "name": "text"})
    ),
    "LanceDataset.merge": _after(
        lambda d: d.merge(pa.table({"id": range(9), "more": range(9)}), "id")
    ),
    "LanceDataset.restore": _after(lambda d: d.checkout_version(1).restore()),
    "LanceDataset.update_metadata": _after(lambda d: dict(d.update_metadata({"a": "b"}))),
    "LanceDataset.update_schema_metadata": _after(
        lambda d: dict(d.update_schema_metadata({"a": "b"}))
    ),
    "LanceDataset.update_field_metadata": _after(
        lambda d: d.update_field_metadata({"id": {"a": "b"}})
    ),
    "LanceDataset.delete_config_keys": _after(lambda d: d.delete_config_keys(["owner"])),
    "LanceDataset.drop_index": _after(lambda d: d.drop_index("id_idx")),
    "LanceDataset.drop_index(absent)": _after(lambda d: d.drop_index("nothing")),
    "LanceDataset.create_scalar_index": _after(
        lambda d: type(d.create_scalar_index("at", "ZONEMAP")).__name__
    ),
    "LanceDataset.create_scalar_index(absent)": _after(
        lambda d: d.create_scalar_index("nothing", "BTREE")
    ),
    "LanceDataset.optimize.compact_files": _after(_compacted),
    "LanceDataset.optimize.optimize_indices": _after(lambda d: d.optimize.optimize_indices()),
    "LanceDataset.cleanup_old_versions": _after(
        lambda d: (
            d.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False).old_versions
        )
    ),
    "LanceDataset.shallow_clone": lambda _, d: d.shallow_clone(f"{d.uri}2", 1).to_table(),
    "LanceDataset.deep_clone": lambda _, d: d.deep_clone(f"{d.uri}3", 1).to_table(),
    "LanceFragment.to_table": lambda _, d: d.get_fragment(0).to_table(["id"]),
    "LanceFragment.head": lambda _, d: d.get_fragment(1).head(3),
    "LanceFragment.take": lambda _, d: d.get_fragment(1).take([2, 5]),
    "LanceFragment.schema": lambda _, d: d.get_fragment(1).schema,
    "LanceFragment.num_deletions": lambda _, d: d.get_fragment(1).num_deletions,
    "LanceFragment.metadata": lambda _, d: [
        d.get_fragment(1).metadata.id,
        d.get_fragment(1).metadata.physical_rows,
        len(d.get_fragment(1).metadata.files),
    ],
    "LanceFragment.validate": lambda _, d: d.get_fragment(1).validate(),
}
"""Runs by method name and variant."""

DIFFERENCES: Final[dict[str, str]] = {
    "LanceDataset.to_batches": "batches next to deleted rows have other boundaries",
}
"""Runs with intentionally different results, with reasons."""

"""Methods of `pyarrow.dataset.Dataset` other than reads.

pyarrow implements them on a C++ dataset. `LanceDataset` wraps an empty C++ dataset with a
file system that refuses all requests, so pyarrow functions that bypass the methods, such as
`pyarrow.dataset.Scanner.from_dataset`, raise an error instead of crashing. Methods that return a
dataset read the required rows into memory first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs

from lancelet.dataset.scan.methods import ReadMethods
from lancelet.dataset.scan.results import ArrowResult
from lancelet.errors import UnsupportedError


class _NoFiles(pa.fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types for it
    """A file system that refuses every request."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NoFiles)

    def __hash__(self) -> int:
        return hash(_NoFiles)

    def get_type_name(self) -> str:
        return "lance"

    def normalize_path(self, path: str) -> str:
        return path

    def _refuse(self, *_: object) -> NoReturn:
        raise UnsupportedError(
            "pyarrow cannot scan this dataset itself; make a scanner with LanceDataset.scanner"
        )

    get_file_info = get_file_info_selector = create_dir = delete_dir = _refuse
    delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refuse


@cache
def _refusing_dataset() -> pa.dataset.Dataset:
    files, form = pa.fs.PyFileSystem(_NoFiles()), pa.dataset.IpcFileFormat()
    paths = ["a dataset of Lance"]
    return pa.dataset.FileSystemDatasetFactory(files, paths, form).finish(pa.schema([]))


class ArrowMethods(ReadMethods, ArrowResult, pa.dataset.UnionDataset):  # type: ignore[misc]  # as above
    """Replaces the methods of `pyarrow.dataset.Dataset`."""

    def __init__(self) -> None:
        """Initialize pyarrow's base class with a C++ dataset that cannot be read."""
        pa.dataset.UnionDataset.__init__(self, pa.schema([]), [_refusing_dataset()])

    def stream(self) -> pa.RecordBatchReader:
        """Return all rows as a stream of record batches.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Example:
            ```python
            for batch in dataset.stream():
                print(batch.num_rows)
            ```
        """
        return self.scanner().to_reader()

    @property
    def children(self) -> NoReturn:
        """Not supported: a table does not consist of datasets."""
        raise AttributeError("a Lance dataset has no child datasets")

    def replace_schema(self, schema: pa.Schema) -> None:
        """Raise: use `add_columns`, `alter_columns` and `drop_columns` to change a schema.

        Args:
            schema: Ignored.

        Raises:
            NotImplementedError: Always.

        Example:
            ```python
            try:
                dataset.replace_schema(dataset.schema)
            except NotImplementedError as error:
                print(error)
            ```
        """
        raise UnsupportedError(
            "the schema of a dataset cannot be replaced as a whole; use add_columns, "
            "alter_columns, drop_columns, or the methods for metadata",
            fields=schema.names[:100],
        )

    def filter(self, expression: pc.Expression | str) -> pa.dataset.Dataset:
        """Return the rows that match an expression, as an in-memory Arrow dataset.

        Args:
            expression: A pyarrow expression or SQL text.

        Returns:
            A `pyarrow.dataset.InMemoryDataset`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            dataset.filter("price > 3").count_rows()
            ```
        """
        return pa.dataset.dataset(self.to_table(filter=expression))

    def sort_by(
        self, sorting: str | Sequence[tuple[str, str]], **kwargs: Any
    ) -> pa.dataset.Dataset:
        """Return the sorted rows as an in-memory Arrow dataset.

        Args:
            sorting: A column, or pairs of a column and `ascending` or `descending`.
            kwargs: Further arguments of `pyarrow.Table.sort_by`.

        Returns:
            A `pyarrow.dataset.InMemoryDataset`.

        Example:
            ```python
            dataset.sort_by([("price", "descending")]).head(3)
            ```
        """
        return pa.dataset.dataset(self.to_table().sort_by(sorting, **kwargs))

    def join(
        self,
        right_dataset: pa.dataset.Dataset,
        keys: str | Sequence[str],
        right_keys: str | Sequence[str] | None = None,
        join_type: str = "left outer",
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        coalesce_keys: bool = True,
        use_threads: bool = True,
    ) -> pa.dataset.Dataset:
        """Join the rows with another dataset, in memory.

        Args:
            right_dataset: The dataset to join with.
            keys: The key columns of this dataset.
            right_keys: The key columns of `right_dataset`; by default the same names.
            join_type: A join type of `pyarrow.Table.join`, such as `inner` or `left outer`.
            left_suffix: Suffix for duplicate column names of this dataset.
            right_suffix: Suffix for duplicate column names of `right_dataset`.
            coalesce_keys: Whether to combine the key columns of both sides.
            use_threads: Whether to use several threads.

        Returns:
            A `pyarrow.dataset.InMemoryDataset`.

        Example:
            ```python
            prices = lance.write_dataset({"id": [1, 2], "price": [4.5, 2.0]}, "memory://")
            stock = lance.write_dataset({"id": [1, 2], "stock": [5, 0]}, "memory://")
            prices.join(stock, "id").count_rows()  # 2
            ```
        """
        joined = self.to_table().join(
            right_dataset.to_table(),
            keys,
            right_keys,
            join_type,
            left_suffix,
            right_suffix,
            coalesce_keys,
            use_threads,
        )
        return pa.dataset.dataset(joined)

    def join_asof(
        self,
        right_dataset: pa.dataset.Dataset,
        on: str,
        by: str | Sequence[str],
        tolerance: int,
        right_on: str | None = None,
        right_by: str | Sequence[str] | None = None,
    ) -> pa.dataset.Dataset:
        """Join each row with the nearest row of another dataset, in memory.

        Args:
            right_dataset: The dataset to join with.
            on: The column to compare by distance, sorted in both datasets.
            by: Columns that must be equal.
            tolerance: The maximum distance of a match; negative values search backward.
            right_on: The column of `right_dataset`; by default `on`.
            right_by: The columns of `right_dataset`; by default `by`.

        Returns:
            A `pyarrow.dataset.InMemoryDataset`.

        Example:
            ```python
            left = lance.write_dataset({"at": [1, 5], "k": [0, 0]}, "memory://")
            right = lance.write_dataset({"at": [0, 4], "k": [0, 0], "x": [10, 40]}, "memory://")
            left.join_asof(right, on="at", by="k", tolerance=-2).to_table()
            ```
        """
        joined = self.to_table().join_asof(
            right_dataset.to_table(), on, by, tolerance, right_on, right_by
        )
        return pa.dataset.dataset(joined)

    @property
    def partition_expression(self) -> NoReturn:
        """Not supported: Lance tables are not partitioned."""
        raise UnsupportedError("the Lance format does not support partitioning")

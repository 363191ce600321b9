"""Fragments with the API of pylance: parts of a dataset that can be read independently.

Fragments also write columns for a later commit:

    for fragment in dataset.get_fragments():       can run on different machines
        metadata, schema = fragment.merge_columns({"b": "a + 1"})
    LanceOperation.Merge([metadata, ...], schema)  the commit that adds the columns
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, overload

import pyarrow as pa
import pyarrow.dataset
from pyroaring import BitMap

from lancelet import change
from lancelet.dataset.arguments import (
    checks_types,
    takes_arguments_of,
    validated_columns,
    whole_numbers,
    with_clear_errors,
)
from lancelet.dataset.columns import BatchUDF, new_columns_of
from lancelet.dataset.scan.scan_methods import FragmentScanMethods
from lancelet.dataset.session import Session
from lancelet.dataset.show import display
from lancelet.dataset.show.progress import FragmentWriteProgress, ProgressOption
from lancelet.dataset.write.external_files import describe_file
from lancelet.dataset.write.fragments import create_fragment
from lancelet.dataset.write.metadata import (
    DataFile,
    FragmentMetadata,
    file_to_user,
    fragment_to_user,
)
from lancelet.dataset.write.request import WriteRequest
from lancelet.dataset.write.schema import LanceSchema
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.fragment import Fragment
from lancelet.rowids.address import addresses_of
from lancelet.scan.nodes.source import FragmentSource
from lancelet.scan.projection import project_parts
from lancelet.scan.take import RowNotFoundError, take_addresses

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class FragmentColumnMethods:
    """Methods that write columns of one fragment without committing them."""

    _dataset: LanceDataset
    _fragment: Fragment

    @checks_types
    def merge_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Write new columns for the fragment without committing. See `LanceDataset.add_columns`.

        Args:
            value_func: The source of the values.
            columns: The columns passed to a function; by default all.
            batch_size: The number of rows per batch.
            reader_schema: The schema of the new rows, if they have none.

        Returns:
            The metadata of the fragment with its new file, and the new schema of the dataset, for
            `LanceOperation.Merge`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            fragments = dataset.get_fragments()
            made = [fragment.merge_columns({"half": "price / 2"}) for fragment in fragments]
            merge = lance.LanceOperation.Merge([fragment for fragment, _ in made], made[0][1])
            dataset = lance.LanceDataset.commit(dataset, merge, read_version=dataset.version)
            ```
        """
        if isinstance(value_func, BatchUDF) and value_func.cache is not None:
            raise InvalidInputError(
                "A checkpoint file cannot be used when applying a UDF with "
                "LanceFragment.merge_columns; store the result of each fragment instead"
            )
        snapshot = self._dataset.snapshot
        source = new_columns_of(value_func, snapshot, columns, reader_schema, batch_size)
        fragment, schema = change.columns.add.add_columns_to_fragment(
            snapshot, self._fragment, source
        )
        return fragment_to_user(fragment), LanceSchema(schema)

    @checks_types
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Write new columns by a left join with in-memory rows, without committing.

        Args:
            data_obj: The rows to join; they must fit into memory.
            left_on: The key column of the fragment.
            right_on: The key column of `data_obj`; by default the same name.
            schema: The schema of `data_obj`, if it has none.

        Returns:
            The metadata of the fragment with its new file, and the new schema of the dataset.

        Raises:
            InvalidInputError: If the key column does not exist, or a new column already exists.

        Example:
            ```python
            metadata, schema = dataset.get_fragment(0).merge({"id": [1], "stock": [5]}, "id")
            ```
        """
        snapshot, rows = self._dataset.snapshot, change.rows.read_rows(data_obj, schema)
        fragment, merged = change.columns.add.join_columns_to_fragment(
            snapshot, self._fragment, rows, left_on, right_on or left_on
        )
        return fragment_to_user(fragment), LanceSchema(merged)

    @overload
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: Literal[False] = False,
    ) -> tuple[FragmentMetadata, list[int]]: ...

    @overload
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: Literal[True],
    ) -> tuple[FragmentMetadata, list[int], bytes]: ...

    @checks_types
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
    ) -> tuple[FragmentMetadata, list[int]] | tuple[FragmentMetadata, list[int], bytes]:
        """Rewrite columns with new values for rows that match a key, without committing.

        Args:
            data_obj: The key column and the columns with new values.
            left_on: The key column of the fragment.
            right_on: The key column of `data_obj`; by default the same name.
            schema: The schema of `data_obj`, if it has none.
            with_offsets: Whether to return the offsets of the matched rows.

        Returns:
            The metadata of the fragment with its new file, the ids of the rewritten fields, and
            the row offsets as a Roaring bitmap, for `LanceOperation.Update`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.

        Example:
            ```python
            fragment = dataset.get_fragment(0)
            metadata, field_ids = fragment.update_columns({"id": [3], "price": [9.5]}, "id")
            ```
        """
        joined = change.columns.from_given.Joined.of(
            change.rows.read_rows(data_obj, schema),
            right_on or left_on,
            self._dataset.snapshot.schema,
            left_on,
        )
        updated = change.columns.update.update_fragment_columns(
            self._dataset.snapshot, self._fragment, left_on, joined
        )
        shown, field_ids = fragment_to_user(updated.fragment), list(updated.field_ids)
        if not with_offsets:
            return shown, field_ids
        return shown, field_ids, BitMap(updated.offsets).serialize()


_ROW_ADDRESS: Final = "_rowaddr"


@with_clear_errors
class LanceFragment(FragmentColumnMethods, FragmentScanMethods, pa.dataset.Fragment):  # type: ignore[misc]  # pyarrow has no types for it
    """A fragment of a dataset: rows that share data files."""

    def __init__(
        self, dataset: LanceDataset, fragment_id: int | None, *, fragment: Fragment | None = None
    ) -> None:
        """Represent the fragment of a dataset with an id."""
        self._dataset = dataset
        if fragment is None:
            fragment = dataset.snapshot.fragments.by_id(int(fragment_id or 0))
        self._fragment = fragment

    @staticmethod
    @checks_types
    def create(
        dataset_uri: str | os.PathLike[str],
        data: Any,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_group: int | None = 1024,
        progress: FragmentWriteProgress | ProgressOption = None,
        mode: str = "append",
        *,
        data_storage_version: str | None = None,
        use_legacy_format: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        session: Session | None = None,
    ) -> FragmentMetadata:
        """Write rows as one fragment without committing; see `write_fragments`.

        Args:
            dataset_uri: The URI of the dataset.
            data: The rows, in any form that `write_dataset` takes.
            fragment_id: The id; by default the commit assigns one.
            schema: The schema to convert the rows to.
            max_rows_per_group: The rows per row group in files of version 0.1.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`;
                or a `FragmentWriteProgress`, called when the fragment begins and is complete.
            mode: `append`, or `create` and `overwrite` for a different schema.
            data_storage_version: The version of the data file.
            use_legacy_format: Deprecated: whether to write file version 0.1.
            storage_options: Options of the object store.
            namespace_client: The namespace of the table.
            table_id: The id of the table in the namespace.
            session: The session with the caches to use.

        Returns:
            The metadata of the fragment, for `LanceOperation.Append`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.

        Example:
            ```python
            fragment = lance.LanceFragment.create(dataset.uri, new_books)
            append = lance.LanceOperation.Append([fragment])
            dataset = lance.LanceDataset.commit(dataset, append, read_version=dataset.version)
            ```
        """
        request = WriteRequest(
            dataset_uri,
            mode,
            max_rows_per_group=max_rows_per_group,
            progress=progress,
            data_storage_version=data_storage_version,
            use_legacy_format=use_legacy_format,
            storage_options=storage_options,
            namespace_client=namespace_client,
            table_id=table_id,
            session=session,
        )
        return replace(create_fragment(data, schema, request), id=fragment_id or 0)

    @staticmethod
    def create_from_file(
        filename: str, dataset: LanceDataset, fragment_id: int
    ) -> FragmentMetadata:
        """Create fragment metadata for a file in the data folder of a dataset.

        Args:
            filename: The name of the file in the data folder.
            dataset: The dataset.
            fragment_id: The id of the fragment.

        Returns:
            The metadata of the fragment, for `LanceOperation.Append`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            CorruptDataError: If a checksum does not match or the file is not valid.

        Example:
            ```python
            name = dataset.get_fragment(0).data_files()[0].path
            lance.LanceFragment.create_from_file(name, dataset, 7)
            ```
        """
        snapshot = dataset.snapshot
        file = describe_file(snapshot, filename)
        return fragment_to_user(change.fragments.fragment_of_file(snapshot, file, fragment_id))

    @property
    def _ds(self) -> LanceDataset:
        """The dataset, under pylance's private name."""
        return self._dataset

    @property
    def fragment_id(self) -> int:
        """The id of the fragment."""
        return int(self._fragment.id)

    @property
    def metadata(self) -> FragmentMetadata:
        """The metadata of the fragment."""
        return fragment_to_user(self._fragment)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._dataset.schema

    @property
    def physical_rows(self) -> int:
        """The number of rows, including deleted rows."""
        return self._dataset.snapshot.physical_rows(self._fragment)

    @property
    def num_deletions(self) -> int:
        """The number of deleted rows."""
        snapshot = self._dataset.snapshot
        return snapshot.physical_rows(self._fragment) - snapshot.live_rows(self._fragment)

    @property
    def physical_schema(self) -> NoReturn:
        """Not supported: the columns of a fragment may be spread over several files."""
        raise UnsupportedError("fragments have no physical schema; use `schema`")

    @property
    def partition_expression(self) -> NoReturn:
        """Not supported: Lance tables are not partitioned."""
        raise UnsupportedError("the Lance format does not support partitioning")

    def data_files(self) -> list[DataFile]:
        """Return the data files.

        Returns:
            The files, in the order of the manifest.

        Example:
            ```python
            [file.path for file in dataset.get_fragment(0).data_files()]
            ```
        """
        return [file_to_user(file) for file in self._fragment.files]

    def deletion_file(self) -> str | None:
        """Return the path of the deletion file.

        Returns:
            The path, or None if no row was deleted.

        Example:
            ```python
            dataset.get_fragment(0).deletion_file()  # None
            ```
        """
        deletion = self._fragment.deletion_file
        return None if deletion is None else deletion.path(self._fragment.id)

    def count_rows(self, filter: Any = None) -> int:  # noqa: A002 - pylance's name
        """Return the number of live rows.

        Args:
            filter: SQL text or a pyarrow expression; by default all rows are counted.

        Returns:
            The number of rows.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            dataset.get_fragment(0).count_rows("price > 3")
            ```
        """
        if filter is None:
            return self._dataset.snapshot.live_rows(self._fragment)
        return self.scanner(columns=[], filter=filter).count_rows()

    @takes_arguments_of(FragmentScanMethods.scanner)
    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches. See `LanceDataset.scanner` for the arguments.

        Yields:
            Record batches.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            for batch in dataset.get_fragment(0).to_batches(columns=["id"]):
                print(batch.num_rows)
            ```
        """
        return self.scanner(*arguments, **options).to_batches()

    @takes_arguments_of(FragmentScanMethods.scanner)
    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Return the rows as an Arrow table. See `LanceDataset.scanner` for the arguments.

        Returns:
            The rows, in memory.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            dataset.get_fragment(0).to_table(["id"], filter="price > 3")
            ```
        """
        return self.scanner(*arguments, **options).to_table()

    def to_pandas(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,  # noqa: A002 - pylance's name
        limit: int | None = None,
        offset: int | None = None,
        batch_size: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blob_mode: str = "lazy",
        order_by: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the rows as a pandas data frame.

        See `LanceDataset.scanner` for the arguments. `blob_mode` selects the representation
        of blob columns: `lazy` files, `bytes` or `descriptions`. Further arguments (`kwargs`) are
        passed to `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            dataset.get_fragment(0).to_pandas(columns=["id"], limit=3)
            ```
        """
        scanner = self.scanner(
            columns,
            filter,
            limit,
            offset,
            with_row_id,
            with_row_address,
            order_by=order_by,
            batch_size=batch_size,
        )
        return scanner.to_pandas(blob_mode=blob_mode, **kwargs)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows.

        Args:
            num_rows: The number of rows.

        Returns:
            At most `num_rows` rows.

        Example:
            ```python
            dataset.get_fragment(0).head(3)
            ```
        """
        return self.to_table(limit=num_rows)

    def take(
        self,
        indices: Sequence[int] | pa.Array,
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Return rows by index.

        Args:
            indices: Indices among the live rows of the fragment, from 0.
            columns: Names of columns, or SQL expressions by name; by default all columns.

        Returns:
            One row per index.

        Raises:
            IndexError: If a row index is out of range.
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            dataset.get_fragment(1).take([3, 0], columns=["id"])
            ```
        """
        snapshot = self._dataset.snapshot
        source = FragmentSource(snapshot, self._fragment, with_deleted=False)
        rows = whole_numbers(indices)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < source.num_visible:
            raise RowNotFoundError(
                "row index out of range of the fragment",
                row=int(rows.max()),
                num_rows=source.num_visible,
            )
        offsets = source.hidden.physical_offsets(rows)
        addresses = addresses_of(self._fragment.id, offsets)
        projection = project_parts(snapshot.schema, validated_columns(columns))
        return take_addresses(snapshot, addresses, projection)

    @checks_types
    def open_session(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        with_row_address: bool | None = None,
    ) -> FragmentSession:
        """Return a session that takes rows of the fragment repeatedly.

        Args:
            columns: Names of columns, or SQL expressions by name; by default all columns.
            with_row_address: Whether to return a column `_rowaddr`.

        Returns:
            The session.

        Raises:
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            session = dataset.get_fragment(0).open_session(columns=["id"])
            session.take([0, 1])
            ```
        """
        return FragmentSession(self, columns, with_row_address=bool(with_row_address))

    def delete(self, predicate: str) -> FragmentMetadata | None:
        """Write a deletion file for the rows that match a predicate, without committing.

        Args:
            predicate: SQL text.

        Returns:
            The metadata of the fragment for `LanceOperation.Delete`, or None if no rows remain.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            changed = dataset.get_fragment(0).delete("id = 3")
            delete = lance.LanceOperation.Delete([changed], [], "id = 3")
            dataset = lance.LanceDataset.commit(dataset, delete, read_version=dataset.version)
            ```
        """
        return _shown(
            change.fragments.delete_matching(self._dataset.snapshot, self._fragment, predicate)
        )

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """Write a deletion file for rows by offset, without committing.

        Args:
            offsets: Offsets among the physical rows, including deleted rows.

        Returns:
            The metadata of the fragment for `LanceOperation.Delete`, or None if no rows remain.

        Raises:
            InvalidInputError: If an offset is out of range.

        Example:
            ```python
            dataset.get_fragment(0).delete_rows([0, 1]).num_rows
            ```
        """
        deleted = [int(offset) for offset in offsets]
        return _shown(
            change.fragments.delete_offsets(self._dataset.snapshot, self._fragment, deleted)
        )

    def validate(self) -> None:
        """Verify that the files of the fragment exist and match the manifest.

        Raises:
            CorruptDataError: If a file is missing or contradicts the manifest.

        Example:
            ```python
            dataset.get_fragment(0).validate()
            ```
        """
        self._dataset.validate()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the dataset and the fragment id; unpickling opens the dataset."""
        return (LanceFragment, (self._dataset, self.fragment_id))

    def __repr__(self) -> str:
        """Show the id and the files."""
        files = [file.path for file in self._fragment.files]
        deletion = self.deletion_file()
        suffix = "" if deletion is None else f", deletion_file={deletion!r}"
        return f"LanceFileFragment(id={self.fragment_id}, data_files={files}{suffix})"

    def _repr_html_(self) -> str:
        """Render the fragment and its first rows for notebooks."""
        facts = {"rows": self.count_rows(), "files": [file.path for file in self._fragment.files]}
        return display.card(f"Fragment {self.fragment_id}", facts, display.preview(self.head(5)))


class FragmentSession:
    """Takes rows of one fragment repeatedly, with open files and cached metadata."""

    def __init__(
        self,
        fragment: LanceFragment,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        with_row_address: bool = False,
    ) -> None:
        """Select the columns, by default all."""
        self._fragment = fragment
        validated_columns(columns)
        self._columns = columns
        if with_row_address:
            names = fragment.schema.names if columns is None else columns
            self._columns = (
                {**names, _ROW_ADDRESS: _ROW_ADDRESS}
                if isinstance(names, Mapping)
                else [*names, _ROW_ADDRESS]
            )

    def take(self, indices: Sequence[int] | pa.Array) -> pa.Table:
        """Return rows by index.

        Args:
            indices: Indices among the live rows of the fragment, from 0.

        Returns:
            One row per index.

        Raises:
            IndexError: If a row index is out of range.

        Example:
            ```python
            dataset.get_fragment(0).open_session(columns=["id"]).take([2, 0])
            ```
        """
        return self._fragment.take(indices, self._columns)


def _shown(fragment: Fragment | None) -> FragmentMetadata | None:
    return None if fragment is None else fragment_to_user(fragment)

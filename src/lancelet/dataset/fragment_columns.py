"""The methods of a fragment that write columns of it, for a commit that somebody makes later.

for fragment in dataset.get_fragments():       each may run on another machine
    metadata, schema = fragment.merge_columns({"b": "a + 1"})
LanceOperation.Merge([metadata, ...], schema)  the commit that adds the columns everywhere
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa
from pyroaring import BitMap

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.lance_schema import LanceSchema
from lancelet.dataset.metadata import FragmentMetadata, fragment_to_user
from lancelet.dataset.transforms import new_columns_of
from lancelet.dataset.udf import BatchUDF
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class FragmentColumnMethods:
    """Writes columns of one fragment; nothing that readers see changes."""

    _dataset: LanceDataset
    _fragment: Fragment

    @checks_kinds
    def merge_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Write new columns for the fragment; nothing is committed. See `LanceDataset.add_columns`.

        Args:
            value_func: Where the values come from.
            columns: The columns passed to a function; by default all.
            batch_size: The number of rows per batch.
            reader_schema: The schema of the given rows, if they do not carry one.

        Returns:
            The metadata of the fragment with its new file, and the new schema of the dataset, for
            `LanceOperation.Merge`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

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
                "LanceFragment.merge_columns; keep what is done of each fragment yourself"
            )
        snapshot = self._dataset.snapshot
        source = new_columns_of(value_func, snapshot, columns, reader_schema, batch_size)
        fragment, schema = ops.columns.add.add_columns_to_fragment(snapshot, self._fragment, source)
        return fragment_to_user(fragment), LanceSchema(schema)

    @checks_kinds
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Write new columns by a left join with other rows; nothing is committed.

        Args:
            data_obj: The rows to join; they have to fit in memory.
            left_on: The key column of the fragment.
            right_on: The key column of the other rows; by default the same name.
            schema: The schema of the other rows, if they do not carry one.

        Returns:
            The metadata of the fragment with its new file, and the new schema of the dataset.

        Raises:
            InvalidInputError: If there is no such key column, or a column exists already.

        Example:
            ```python
            metadata, schema = dataset.get_fragment(0).merge({"id": [1], "stock": [5]}, "id")
            ```
        """
        snapshot, rows = self._dataset.snapshot, ops.rows.read_rows_of(data_obj, schema)
        fragment, merged = ops.columns.add.join_columns_to_fragment(
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

    @checks_kinds
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
    ) -> tuple[FragmentMetadata, list[int]] | tuple[FragmentMetadata, list[int], bytes]:
        """Rewrite columns, with new values in the rows that match a key; nothing is committed.

        Args:
            data_obj: The key, and the columns with their new values.
            left_on: The key column of the fragment.
            right_on: The key column of `data_obj`; by default the same name.
            schema: The schema of the data, if they do not carry one.
            with_offsets: Whether to return the offsets of the matched rows as well.

        Returns:
            The metadata of the fragment with its new file, the ids of the fields in it, and the
            offsets as a Roaring bitmap, all of which `LanceOperation.Update` takes.

        Raises:
            FieldNotFoundError: If there is no such column.
            SchemaMismatchError: If the rows do not fit the schema, or a value would change by
                conversion.

        Example:
            ```python
            fragment = dataset.get_fragment(0)
            metadata, field_ids = fragment.update_columns({"id": [3], "price": [9.5]}, "id")
            ```
        """
        joined = ops.columns.from_join.Joined.of(
            ops.rows.read_rows_of(data_obj, schema), right_on or left_on
        )
        updated = ops.columns.update.update_fragment_columns(
            self._dataset.snapshot, self._fragment, left_on, joined
        )
        shown, field_ids = fragment_to_user(updated.fragment), list(updated.field_ids)
        if not with_offsets:
            return shown, field_ids
        return shown, field_ids, BitMap(updated.offsets).serialize()
